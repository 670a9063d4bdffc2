//! `countwheel occurrence`: one occurrence of a running server, and the evidence about it.

use std::process::ExitCode;

use clap::{Args, Subcommand, builder::NonEmptyStringValueParser};
use ureq::http::Method;

use super::{
    conclude,
    connect::ConnectArgs,
    error::ClientError,
    http::{Ask, Client, segment},
    local::Clocks,
    print, show,
};

/// Options of `occurrence`.
#[derive(Args)]
pub(crate) struct OccurrenceArgs {
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(subcommand)]
    command: OccurrenceCommand,
}

#[derive(Subcommand)]
enum OccurrenceCommand {
    /// Show an occurrence and its attempts
    Get(Id),
    /// Show what is known of it, and whether it may run
    Evidence(Id),
}

/// Which occurrence.
#[derive(Args, Clone)]
pub(super) struct Id {
    /// The occurrence's id
    #[arg(value_name = "ID", value_parser = NonEmptyStringValueParser::new())]
    id: String,
}

impl From<&str> for Id {
    fn from(id: &str) -> Self {
        Self { id: id.to_owned() }
    }
}

impl Id {
    /// `/v1/occurrences/{id}` and what follows.
    pub(super) fn path(&self, rest: &str) -> String {
        format!("/v1/occurrences/{}{rest}", segment(&self.id))
    }
}

/// Runs the command.
pub(crate) fn run(args: &OccurrenceArgs) -> ExitCode {
    let json = args.connect.json;
    conclude(args.connect.client().and_then(|client| carry_out(&client, &args.command, json)), json)
}

fn carry_out(client: &Client, command: &OccurrenceCommand, json: bool) -> Result<(), ClientError> {
    let (answer, shown) = match command {
        OccurrenceCommand::Get(id) => {
            let answer = client.ask(&Ask::new(Method::GET, id.path("")))?;
            let shown = show::occurrence(&answer, &Clocks::new());
            (answer, shown)
        }
        OccurrenceCommand::Evidence(id) => {
            let answer = client.ask(&Ask::new(Method::GET, id.path("/evidence")))?;
            let shown = show::evidenced(&answer);
            (answer, shown)
        }
    };
    print(&if json { format!("{answer}\n") } else { shown })
}
