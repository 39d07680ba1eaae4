//! What is told of a part that broke off?
//!
//! A panic says what it was working on, which may be a patient's words ("byte index 4 is not a char boundary in …").
//! So its message is never shown: neither where it happens ([`panic_told`]) nor by whoever waits for the part
//! ([`broke_off`], since the library's own text of the error repeats the message).

use std::any::Any;
use std::panic::Location;

use tokio::task::JoinError;

/// Why a task has no result.
pub fn broke_off(error: &JoinError) -> &'static str {
    if error.is_panic() {
        "it panicked"
    } else {
        "it was stopped"
    }
}

/// A line about a panic: where it was, and its message only if that stands in the program and so holds nobody's
/// words; otherwise how long it is.
pub fn panic_told(message: &dyn Any, at: Option<&Location<'_>>) -> String {
    let at = at.map_or_else(|| "an unknown place".to_owned(), Location::to_string);
    let what = if let Some(fixed) = message.downcast_ref::<&'static str>() {
        (*fixed).to_owned()
    } else if let Some(made) = message.downcast_ref::<String>() {
        format!("{} bytes of message, not shown", made.len())
    } else {
        "no message".to_owned()
    };
    format!("panic at {at}: {what}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_a_part_was_working_on_is_not_told() {
        let words = "王芳对青霉素过敏".to_owned();
        let broken = tokio::spawn(async move { words[1..].len() }).await;
        let error = broken.unwrap_err();
        assert!(error.to_string().contains("王芳"), "the library tells it");
        assert_eq!(broke_off(&error), "it panicked");
        let told = panic_told(&*error.into_panic(), Some(Location::caller()));
        assert!(!told.contains("王芳"), "{told}");
        assert!(
            told.contains("broken.rs") && told.contains("not shown"),
            "{told}"
        );

        let stopped = tokio::spawn(std::future::pending::<()>());
        stopped.abort();
        assert_eq!(broke_off(&stopped.await.unwrap_err()), "it was stopped");
    }

    #[test]
    fn what_stands_in_the_program_is_told() {
        let told = |message: &dyn Any| panic_told(message, None);
        assert_eq!(
            told(&"not reached"),
            "panic at an unknown place: not reached"
        );
        assert_eq!(told(&7_u8), "panic at an unknown place: no message");
        let made = "abc".to_owned();
        assert_eq!(
            told(&made),
            "panic at an unknown place: 3 bytes of message, not shown"
        );
    }
}
