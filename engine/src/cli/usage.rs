//! How a command line that does not read is told: one line, like every other error.

use clap::error::{Error, ErrorKind};

/// What to print for a command line that clap does not take.
pub(crate) enum Told {
    /// What was asked for: the help or the version.
    Answer(String),
    /// What is wrong, and where to look.
    Refusal(String),
}

/// Turns clap's several lines into one.
pub(crate) fn told(error: &Error) -> Told {
    let text = error.render().to_string();
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Told::Answer(text),
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            Told::Refusal(format!("no command is given: see {} --help", command(&text)))
        }
        _ => {
            let said = text.strip_prefix("error: ").unwrap_or(&text);
            let said = said.split("\nUsage:").next().unwrap_or(said);
            let said = said.split("\nFor more information").next().unwrap_or(said);
            let words: Vec<&str> = said.split_whitespace().collect();
            let line = words.join(" ").replace(" tip: ", "; tip: ");
            Told::Refusal(format!("{line}: see {} --help", command(&text)))
        }
    }
}

/// The command whose usage clap shows: `countwheel serve`.
fn command(text: &str) -> String {
    let usage = text.lines().find_map(|line| line.trim_start().strip_prefix("Usage: ")).unwrap_or("countwheel");
    let words = usage.split(' ').take_while(|word| word.starts_with(|first: char| first.is_ascii_lowercase()));
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    fn refusal(arguments: &[&str]) -> String {
        let arguments = [&["countwheel"], arguments].concat();
        let error = crate::cli::Cli::try_parse_from(arguments).map(|_| ()).unwrap_err();
        match told(&error) {
            Told::Refusal(line) => line,
            Told::Answer(text) => panic!("an answer: {text}"),
        }
    }

    #[test]
    fn every_refusal_is_one_line_that_names_the_help() {
        for (arguments, said, command) in [
            (&["serve", "--frobnicate"][..], "unexpected argument '--frobnicate' found", "countwheel serve"),
            (&["preview", "* * * * *"], "--zone <ZONE>", "countwheel preview"),
            (&["preview", "x", "--zone", "UTC", "--count", "0"], "0 is not in 1..=10000", "countwheel"),
            (&["prewiew"], "unrecognized subcommand 'prewiew'", "countwheel"),
            (&["wal"], "no command is given", "countwheel wal"),
            (&[], "no command is given", "countwheel"),
        ] {
            let line = refusal(arguments);
            assert!(line.contains(said) && line.ends_with(&format!(": see {command} --help")), "{line}");
            assert!(!line.contains('\n'), "{line}");
        }
    }
}
