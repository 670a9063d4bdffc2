//! Who may call the server: a file of tokens, read at the start and again on SIGHUP.
//!
//! It fails closed: as long as the HTTP side checks no tokens, a server that was told to use some does not start.

use std::{net::SocketAddr, path::PathBuf};

/// What the server lets in.
pub(super) struct Access {
    tokens: Option<PathBuf>,
}

impl Access {
    /// Reads the tokens, if there are to be some. The error says what is wrong with the file, and what to do.
    pub(super) fn load(tokens: Option<PathBuf>) -> Result<Self, String> {
        match tokens {
            None => Ok(Self { tokens }),
            Some(_) => Err("the server checks no tokens yet: leave it out and listen on loopback".to_owned()),
        }
    }

    /// Whether a request needs a token.
    pub(super) fn is_guarded(&self) -> bool {
        self.tokens.is_some()
    }

    /// Whether it may listen there: what is not guarded answers on loopback only.
    pub(super) fn allows(&self, address: SocketAddr) -> bool {
        self.is_guarded() || address.ip().is_loopback()
    }

    /// Reads the tokens again. A file that is not in order changes nothing: who was let in stays so.
    pub(super) fn reload(&self) {
        match &self.tokens {
            None => tracing::info!("SIGHUP: there is no tokens file to read again"),
            Some(path) => tracing::info!(path = %path.display(), "SIGHUP: the tokens are read again"),
        }
    }
}
