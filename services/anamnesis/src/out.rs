//! What a command says, on standard output and beside it. Whoever listens may leave (`… | head`): the rest
//! is then said to nobody, and the command ends as it would have. The standard library's macros panic.

use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write as _};

use crate::cli::Exit;

/// A line on standard output, with the words of `format!`.
#[macro_export]
macro_rules! say {
    ($($words:tt)*) => {
        $crate::out::words(format_args!("{}\n", format_args!($($words)*)))
    };
}

/// As [`say!`], without an end of the line.
#[macro_export]
macro_rules! say_text {
    ($($words:tt)*) => {
        $crate::out::words(format_args!($($words)*))
    };
}

/// A line on standard error.
#[macro_export]
macro_rules! complain {
    ($($words:tt)*) => {
        $crate::out::beside(format_args!($($words)*))
    };
}

/// Behind [`say!`]. Where standard output cannot be written for another reason than that nobody reads,
/// such as a full disk, the process ends: half an export must not look like a whole one.
pub fn words(words: Arguments<'_>) {
    let mut out = io::stdout().lock();
    let written = out.write_fmt(words).and_then(|()| out.flush());
    match written {
        Ok(()) => (),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => (),
        Err(error) => {
            beside(format_args!(
                "anamnesis: standard output cannot be written: {error}"
            ));
            std::process::exit(i32::from(Exit::Unreachable.code()));
        }
    }
}

/// Behind [`complain!`]. Where standard error cannot be written, there is nobody to tell.
pub fn beside(words: Arguments<'_>) {
    let _ = writeln!(io::stderr().lock(), "{words}");
}
