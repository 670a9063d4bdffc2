//! `countwheel token new`: a fresh token, shown once, and the line that lets it in.

use std::{fmt::Write as _, process::ExitCode};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use clap::{Args, Subcommand};
use sha2::{Digest, Sha256};

use super::{
    report::{failed, say},
    values,
};

/// What every token begins with, so that one is known where it should not be.
const PREFIX: &str = "cw_";
/// Bytes of chance in a token.
const SECRET_BYTES: usize = 32;

/// Options of `token`.
#[derive(Args)]
pub(crate) struct TokenArgs {
    #[command(subcommand)]
    command: TokenCommand,
}

#[derive(Subcommand)]
enum TokenCommand {
    /// Print a new token, then its line for the tokens file; the token itself is kept nowhere
    New {
        /// What it may do: admin, tenant:ID or worker:QUEUE
        #[arg(long, value_name = "ROLE", value_parser = role)]
        role: String,
        /// Whose it is, for the file's readers
        #[arg(long, value_name = "L", value_parser = label)]
        label: Option<String>,
    },
}

/// Runs the command.
pub(crate) fn run(args: TokenArgs) -> ExitCode {
    let TokenCommand::New { role, label } = args.command;
    let mut secret = [0; SECRET_BYTES];
    if let Err(error) = getrandom::fill(&mut secret) {
        return failed(format_args!("no token: the system gave no random bytes ({error}): try again"));
    }
    let token = token_of(secret);
    say(&token);
    say(line_of(&role, &token, label.as_deref()));
    ExitCode::SUCCESS
}

fn token_of(secret: [u8; SECRET_BYTES]) -> String {
    format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(secret))
}

/// `<role> <sha256 of the token in hex> [label]`
fn line_of(role: &str, token: &str, label: Option<&str>) -> String {
    let mut line = format!("{role} ");
    for byte in Sha256::digest(token) {
        let _ = write!(line, "{byte:02x}");
    }
    if let Some(label) = label {
        let _ = write!(line, " {label}");
    }
    line
}

fn role(text: &str) -> Result<String, String> {
    let named = ["tenant:", "worker:"].into_iter().find_map(|kind| text.strip_prefix(kind));
    match (text, named) {
        ("admin", _) => Ok(text.to_owned()),
        (_, Some(name)) => values::name(name).map(|_| text.to_owned()),
        (_, None) => Err("give admin, tenant:ID or worker:QUEUE".to_owned()),
    }
}

fn label(text: &str) -> Result<String, String> {
    let fits = (1..=64).contains(&text.len()) && !text.chars().any(char::is_control) && text.trim() == text;
    if fits {
        Ok(text.to_owned())
    } else {
        Err("give 1 to 64 bytes of text in one line, without blanks around it".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_holds_the_hash_and_not_the_token() {
        let token = token_of([7; SECRET_BYTES]);
        assert_eq!(token, "cw_BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc");
        // printf %s TOKEN | sha256sum
        let hash = "be5cb7fd835aba7c28b4745d5723f4a8523d05aaa9d6a5f750a73e2aea65ec35";
        assert_eq!(line_of("admin", &token, None), format!("admin {hash}"));
        assert_eq!(line_of("tenant:acme", &token, Some("ci")), format!("tenant:acme {hash} ci"));
    }

    #[test]
    fn a_role_is_one_of_three_with_a_name_that_the_engine_takes() {
        for good in ["admin", "tenant:acme", "worker:mail.eu-1"] {
            assert_eq!(role(good), Ok(good.to_owned()));
        }
        for bad in ["", "root", "tenant:", "tenant:Acme", "worker:a b", "admin ", "tenant:a\nadmin 00"] {
            assert!(role(bad).is_err(), "{bad}");
        }
        for bad in ["", " a", "a\nb", "a\u{1b}b", &"x".repeat(65)] {
            assert!(label(bad).is_err(), "{bad}");
        }
        assert!(label("ops, on call").is_ok());
    }
}
