//! How is a field refused that this tool does not model?

use tonic::Status;

pub(crate) fn unmodelled(what: &str) -> Status {
    // Told to whoever runs the test, since the adapter under test drops the server's words.
    eprintln!("refused: {what} is not modelled");
    Status::unimplemented(format!("{what} is not modelled by this test tool"))
}

/// A field that must not be there.
pub(crate) fn absent<T>(what: &str, value: Option<T>) -> Result<(), Status> {
    match value {
        None => Ok(()),
        Some(_) => Err(unmodelled(what)),
    }
}

/// A list or map that must be empty.
pub(crate) fn empty(what: &str, length: usize) -> Result<(), Status> {
    match length {
        0 => Ok(()),
        _ => Err(unmodelled(what)),
    }
}

/// A field that may be there with this value only.
pub(crate) fn only<T: PartialEq>(what: &str, value: Option<T>, modelled: T) -> Result<(), Status> {
    match value {
        None => Ok(()),
        Some(value) if value == modelled => Ok(()),
        Some(_) => Err(unmodelled(what)),
    }
}

pub(crate) fn invalid(what: impl Into<String>) -> Status {
    Status::invalid_argument(what)
}
