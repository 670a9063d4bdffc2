//! From a certificate and a key on disk to what an HTTPS server needs, before anything listens.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem, pem::PemObject},
};

use crate::cli::settings::{Setting, TlsFiles};

/// Why HTTPS cannot be served with these files.
#[derive(Debug, thiserror::Error)]
#[error("{}: {problem}", path.display())]
pub(super) struct TlsError {
    /// The setting to correct.
    pub(super) key: Setting,
    path: PathBuf,
    problem: String,
}

/// Reads both files; the key must belong to the certificate. TLS 1.2 and 1.3, no client certificates.
pub(super) fn load(files: &TlsFiles) -> Result<ServerConfig, TlsError> {
    let refuse = |key, path: &Path, problem: String| TlsError { key, path: path.to_owned(), problem };
    let chain = CertificateDer::pem_file_iter(&files.cert).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let chain = chain.map_err(|error| refuse(Setting::TlsCert, &files.cert, said(&error)))?;
    if chain.is_empty() {
        return Err(refuse(Setting::TlsCert, &files.cert, "holds no certificate: give a PEM file that does".into()));
    }
    let key = PrivateKeyDer::from_pem_file(&files.key);
    let key = key.map_err(|error| refuse(Setting::TlsKey, &files.key, said(&error)))?;
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring has what the default versions need")
        .with_no_client_auth()
        .with_single_cert(chain, key);
    let whose = files.cert.display();
    config
        .map_err(|error| refuse(Setting::TlsKey, &files.key, format!("{error}: give the key that belongs to {whose}")))
}

fn said(error: &pem::Error) -> String {
    match error {
        pem::Error::NoItemsFound => "holds no private key: give a PEM file that does".into(),
        pem::Error::Io(error) => format!("{error}: give a PEM file that can be read"),
        error => format!("is no PEM file ({error}): give one"),
    }
}
