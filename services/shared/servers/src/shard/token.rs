//! Who may ask? Whoever has the token that all processes of the installation share.

use anamnesis_pipeline::stores::StoreError;
use tonic::metadata::{Ascii, MetadataMap, MetadataValue};
use zeroize::Zeroizing;

const HEADER: &str = "authorization";
const SCHEME: &str = "Bearer ";

/// The token out of the environment; `None` where none is named.
///
/// # Errors
/// [`StoreError::Unusable`] when the named variable holds none.
fn read(variable: Option<&str>) -> Result<Option<Zeroizing<String>>, StoreError> {
    let Some(name) = variable else {
        return Ok(None);
    };
    match std::env::var(name).map(Zeroizing::new) {
        Ok(token) if !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic()) => {
            Ok(Some(token))
        }
        Ok(_) | Err(_) => Err(StoreError::Unusable {
            what: format!(
                "the environment variable {name} should hold the token of the shards, of printable \
                 characters without white space"
            ),
        }),
    }
}

/// What a client says with every question.
///
/// # Errors
/// As [`read`].
pub(super) fn credentials(
    variable: Option<&str>,
) -> Result<Option<MetadataValue<Ascii>>, StoreError> {
    let Some(token) = read(variable)? else {
        return Ok(None);
    };
    let text = Zeroizing::new(format!("{SCHEME}{}", *token));
    let mut value: MetadataValue<Ascii> = text.parse().expect("printable characters");
    value.set_sensitive(true);
    Ok(Some(value))
}

pub(super) fn attach(credentials: Option<&MetadataValue<Ascii>>, metadata: &mut MetadataMap) {
    if let Some(value) = credentials {
        metadata.insert(HEADER, value.clone());
    }
}

/// What a server asks for.
pub(super) struct Guard {
    /// Hashes compare in constant time and are of one length.
    expected: Option<blake3::Hash>,
}

impl Guard {
    /// # Errors
    /// As [`read`].
    pub(super) fn new(variable: Option<&str>) -> Result<Self, StoreError> {
        let expected = read(variable)?.map(|token| blake3::hash(token.as_bytes()));
        Ok(Self { expected })
    }

    pub(super) fn admits(&self, metadata: &MetadataMap) -> bool {
        let Some(expected) = self.expected else {
            return true;
        };
        let given = metadata.get(HEADER).map(MetadataValue::as_bytes);
        given
            .and_then(|value| value.strip_prefix(SCHEME.as_bytes()))
            .is_some_and(|token| blake3::hash(token) == expected)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admits(guard: &Guard, header: Option<&str>) -> bool {
        let mut metadata = MetadataMap::new();
        if let Some(header) = header {
            metadata.insert(HEADER, header.parse().unwrap());
        }
        guard.admits(&metadata)
    }

    #[test]
    fn only_the_token_opens() {
        let guard = Guard {
            expected: Some(blake3::hash(b"t0ken")),
        };
        assert!(admits(&guard, Some("Bearer t0ken")));
        for header in [
            None,
            Some(""),
            Some("t0ken"),
            Some("Bearer "),
            Some("Bearer t0ke"),
            Some("Bearer t0ken2"),
            Some("bearer t0ken"),
        ] {
            assert!(!admits(&guard, header), "{header:?}");
        }
        let open = Guard { expected: None };
        assert!(admits(&open, None) && admits(&open, Some("Bearer anything")));
    }

    #[test]
    fn a_token_that_is_not_there_is_named() {
        let error = credentials(Some("ANAMNESIS_NO_SUCH_TOKEN")).unwrap_err();
        assert!(
            error.to_string().contains("ANAMNESIS_NO_SUCH_TOKEN"),
            "{error}"
        );
    }
}
