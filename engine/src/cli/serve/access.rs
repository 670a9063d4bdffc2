//! Who may call the server: a file of tokens, read at the start and again on SIGHUP.

use std::{net::SocketAddr, path::Path, sync::Arc};

use crate::api::auth::{TokenFile, TokensError};

/// What the server lets in.
pub(super) struct Access {
    tokens: Option<Arc<TokenFile>>,
}

impl Access {
    /// Reads the tokens, if there are to be some.
    pub(super) fn load(tokens: Option<&Path>) -> Result<Self, TokensError> {
        Ok(Self { tokens: tokens.map(TokenFile::load).transpose()?.map(Arc::new) })
    }

    /// The tokens that requests need, if they need one.
    pub(super) fn tokens(&self) -> Option<Arc<TokenFile>> {
        self.tokens.clone()
    }

    /// Whether a request needs a token.
    pub(super) const fn is_guarded(&self) -> bool {
        self.tokens.is_some()
    }

    /// Whether it may listen there: what is not guarded answers on loopback only.
    pub(super) fn allows(&self, address: SocketAddr) -> bool {
        self.is_guarded() || address.ip().is_loopback()
    }

    /// Reads the tokens again. A file that is not in order changes nothing: who was let in stays so.
    pub(super) fn reload(&self) {
        match self.tokens.as_ref().map(|tokens| tokens.reload()) {
            None => tracing::info!("SIGHUP: there is no tokens file to read again"),
            Some(Ok(tokens)) => tracing::info!(tokens, "SIGHUP: the tokens were read again"),
            Some(Err(error)) => tracing::error!(%error, "SIGHUP: the tokens stay as they were"),
        }
    }
}
