//! Whom an `https://` server must be vouched for by.

use std::path::Path;
#[cfg(feature = "tls")]
use std::path::PathBuf;

use ureq::{config::ConfigBuilder, typestate::AgentScope};

/// Why a server cannot be trusted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum TrustError {
    /// The file with certificates has to be corrected.
    #[cfg(feature = "tls")]
    #[error("{}: {why}", path.display())]
    File { path: PathBuf, why: String },
    /// There is nothing to trust.
    #[cfg(feature = "tls")]
    #[error("no certificate to trust was found: give a PEM file")]
    Nothing,
    /// This build has no TLS.
    #[cfg(not(feature = "tls"))]
    #[error("this build has no TLS: build with the feature tls or give an http:// URL")]
    NoTls,
}

/// Trusts the certificates in `ca`, or the system's.
#[cfg(feature = "tls")]
pub(crate) fn trusting(
    builder: ConfigBuilder<AgentScope>,
    ca: Option<&Path>,
) -> Result<ConfigBuilder<AgentScope>, TrustError> {
    use std::{fs, sync::Arc};

    use rustls::crypto::ring;
    use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};

    let certificates: Vec<Certificate<'static>> = match ca {
        Some(path) => {
            let refuse = |why: String| TrustError::File { path: path.to_owned(), why };
            let text = fs::read(path).map_err(|error| refuse(error.to_string()))?;
            let items = parse_pem(&text).collect::<Result<Vec<_>, _>>();
            let items = items.map_err(|error| refuse(format!("is no PEM file ({error}): give one")))?;
            items
                .into_iter()
                .filter_map(|item| if let PemItem::Certificate(it) = item { Some(it) } else { None })
                .collect()
        }
        None => {
            let found = rustls_native_certs::load_native_certs().certs;
            found.iter().map(|certificate| Certificate::from_der(certificate).to_owned()).collect()
        }
    };
    if certificates.is_empty() {
        return Err(TrustError::Nothing);
    }
    let config = TlsConfig::builder()
        .root_certs(RootCerts::new_with_certs(&certificates))
        .unversioned_rustls_crypto_provider(Arc::new(ring::default_provider()));
    Ok(builder.tls_config(config.build()))
}

/// This build has none.
#[cfg(not(feature = "tls"))]
pub(crate) fn trusting(
    _builder: ConfigBuilder<AgentScope>,
    _ca: Option<&Path>,
) -> Result<ConfigBuilder<AgentScope>, TrustError> {
    Err(TrustError::NoTls)
}
