//! What can go wrong between the command line and the server.

use std::io;

use serde_json::Value;

/// Why a command was not carried out, or not to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(super) enum ClientError {
    /// The command line, or a file that it names, has to be corrected.
    #[error("{0}")]
    Usage(String),
    /// The server said no.
    #[error("{line}")]
    Refused {
        /// `field: message`, or the message alone.
        line: String,
        /// The answer as it came.
        body: Value,
    },
    /// Nobody answered, or not to the end.
    #[error("{url}: {why}")]
    Unreachable { url: String, why: String },
    /// Who answers is no Countwheel server, or one of another time.
    #[error("{url} answered {status} with something that is not understood: is this a countwheel server")]
    Odd { url: String, status: u16 },
    /// The server does not know the call.
    #[error("{url}: this server has no {call}: ask a newer one")]
    NotBuilt { url: String, call: String },
    /// Some lines of an import were refused; they have been told already.
    #[error("{refused} of {lines} lines were refused: correct them and import the file again")]
    Import { refused: u64, lines: u64 },
    /// An import stopped between two lines.
    #[error("stopped after line {line}: {why}: import it again, what has a key is not made twice")]
    Stopped { line: u64, why: Box<Self> },
    /// What is to be imported could not be read.
    #[error("{name}: {source}: check the file")]
    Input { name: String, source: io::Error },
    /// Standard output failed.
    #[error("standard output: {0}: check where it goes")]
    Output(io::Error),
    /// Who read standard output has gone: nothing is wrong.
    #[error("the reader has gone")]
    ReaderGone,
}

/// `field: message` of an error body, or the message alone.
pub(super) fn line_of(body: &Value) -> Option<String> {
    let error = body.get("error")?;
    let message = error.get("message")?.as_str()?;
    let field = error.get("field").and_then(Value::as_str);
    Some(field.map_or_else(|| message.to_owned(), |field| format!("{field}: {message}")))
}
