//! Whom does a connection over TLS believe? The certificates of a file, or the system's.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};

/// # Errors
/// A sentence that says which certificates are missing.
pub(crate) fn client_config(ca_file: Option<&Path>) -> Result<ClientConfig, String> {
    let mut roots = RootCertStore::empty();
    match ca_file {
        Some(path) => {
            let unreadable = || format!("{} holds no certificates in PEM form", path.display());
            let file = File::open(path)
                .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
            for certificate in CertificateDer::pem_reader_iter(BufReader::new(file)) {
                let certificate = certificate.map_err(|_| unreadable())?;
                roots.add(certificate).map_err(|_| unreadable())?;
            }
            if roots.is_empty() {
                return Err(unreadable());
            }
        }
        None => {
            let system = rustls_native_certs::load_native_certs();
            roots.add_parsable_certificates(system.certs);
            if roots.is_empty() {
                return Err(
                    "the system has no certificate authorities: name a file of them".to_owned(),
                );
            }
        }
    }
    believing(roots)
}

/// For a client that only speaks without TLS: believes nobody.
///
/// # Errors
/// A sentence that says what is missing.
pub(crate) fn believing_nobody() -> Result<ClientConfig, String> {
    believing(RootCertStore::empty())
}

fn believing(roots: RootCertStore) -> Result<ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}
