//! One binary for everything that needs the whole product: each further one would link it all again.

mod crash;
mod http;
mod node;
mod refusals;
mod tidy;
