//! What may wait when others have work: threads of their own, which the system serves last.
//!
//! A memory is recallable when records and text have it. Vectors and graph follow, in batches that keep a processor
//! busy for a while; on the same threads, what has just been decided would wait behind them.

use std::io;

use tokio::runtime::{Builder, Handle, Runtime};

const THREADS: usize = 2;

/// How much these threads yield to others: a third of the time that an ordinary one gets beside them.
const NICENESS: i32 = 5;

/// A runtime whose threads yield. What still runs on it when it is dropped is dropped as well.
pub(crate) struct Behind {
    runtime: Option<Runtime>,
}

impl Behind {
    /// # Errors
    /// When no thread can be started.
    pub(crate) fn start() -> io::Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("behind")
            .on_thread_start(yield_to_others)
            .enable_all()
            .build()?;
        Ok(Self {
            runtime: Some(runtime),
        })
    }

    pub(crate) fn handle(&self) -> &Handle {
        let runtime = self.runtime.as_ref();
        runtime.expect("present until it is dropped").handle()
    }
}

impl Drop for Behind {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // To wait here would block whoever drops it.
            runtime.shutdown_background();
        }
    }
}

/// Of the calling thread, where a system knows priorities of threads. Elsewhere it would be the process's.
#[cfg(target_os = "linux")]
fn yield_to_others() {
    if let Err(error) = rustix::process::setpriority_process(None, NICENESS) {
        tracing::warn!(%error, "a thread in the background has the priority of any other");
    }
}

#[cfg(not(target_os = "linux"))]
fn yield_to_others() {}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn its_threads_yield_and_others_do_not() {
        let own = || rustix::process::getpriority_process(None).unwrap();
        let before = own();
        let behind = Behind::start().unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        behind.handle().spawn(async move { tell.send(own()) });
        assert_eq!(told.recv().unwrap(), (before + NICENESS).min(19));
        assert_eq!(own(), before);
    }
}
