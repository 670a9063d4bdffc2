//! Which server, as whom: options, environment, defaults.

use std::{env, fs, path::PathBuf};

use clap::Args;

use super::{error::ClientError, http::Client};

const DEFAULT_URL: &str = "http://127.0.0.1:7171";

/// Options of every command that talks to a server.
#[derive(Args, Clone)]
pub(crate) struct ConnectArgs {
    /// The server; also COUNTWHEEL_URL [default: http://127.0.0.1:7171]
    #[arg(long, value_name = "URL", global = true, help_heading = "Server")]
    url: Option<String>,
    /// The token; also COUNTWHEEL_TOKEN, which other users of the machine do not see
    #[arg(long, value_name = "TOKEN", global = true, conflicts_with = "token_file", help_heading = "Server")]
    token: Option<String>,
    /// Read the token from this file
    #[arg(long, value_name = "FILE", global = true, help_heading = "Server")]
    token_file: Option<PathBuf>,
    /// Trust the certificates in this PEM file instead of the system's
    #[arg(long, value_name = "PEM", global = true, help_heading = "Server")]
    ca: Option<PathBuf>,
    /// Print the server's JSON
    #[arg(long, global = true, help_heading = "Server")]
    pub(super) json: bool,
}

impl ConnectArgs {
    /// The client of that server. Nothing is connected yet.
    pub(super) fn client(&self) -> Result<Client, ClientError> {
        let url = self.url.clone().or_else(|| variable("COUNTWHEEL_URL")).unwrap_or_else(|| DEFAULT_URL.to_owned());
        Client::new(&url, self.read_token()?, self.ca.as_deref())
    }

    fn read_token(&self) -> Result<Option<String>, ClientError> {
        let token = match &self.token_file {
            Some(path) => {
                let text = fs::read_to_string(path);
                let text =
                    text.map_err(|error| ClientError::Usage(format!("--token-file {}: {error}", path.display())))?;
                Some(text.trim().to_owned())
            }
            None => self.token.clone().or_else(|| variable("COUNTWHEEL_TOKEN")),
        };
        let fits = |token: &String| !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
        match token {
            Some(token) if !fits(&token) => {
                Err(ClientError::Usage("the token is empty or has blanks in it: give it as it was printed".to_owned()))
            }
            token => Ok(token),
        }
    }
}

/// A variable that is set to something.
fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}
