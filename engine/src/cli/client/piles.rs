//! `countwheel dead` and `countwheel held`: what waits for a person, and what the person decides.

use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum, builder::NonEmptyStringValueParser};
use serde_json::{Value, json};
use ureq::http::Method;

use super::{
    conclude,
    connect::ConnectArgs,
    error::ClientError,
    http::{Ask, Client},
    lists::{Extent, walk},
    local::Clocks,
    occurrence::Id,
    print, show,
};

/// How much of a pile is wanted.
#[derive(Args)]
struct PileArgs {
    /// Only this tenant's
    #[arg(long, value_name = "ID")]
    tenant: Option<String>,
    #[command(flatten)]
    extent: Extent,
}

/// Options of `dead`.
#[derive(Args)]
pub(crate) struct DeadArgs {
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    list: PileArgs,
    #[command(subcommand)]
    command: Option<DeadCommand>,
}

#[derive(Subcommand)]
enum DeadCommand {
    /// List them; the same as leaving the word out
    List(PileArgs),
    /// Give them their attempts anew, under the same ids
    Replay {
        /// Their ids
        #[arg(value_name = "ID", required = true, value_parser = NonEmptyStringValueParser::new())]
        ids: Vec<String>,
    },
}

/// Options of `held`.
#[derive(Args)]
pub(crate) struct HeldArgs {
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    list: PileArgs,
    #[command(subcommand)]
    command: Option<HeldCommand>,
}

#[derive(Subcommand)]
enum HeldCommand {
    /// List them; the same as leaving the word out
    List(PileArgs),
    /// Decide about one of them
    Resolve {
        #[command(flatten)]
        id: Id,
        /// retry: nothing was committed, run it once more; succeeded: it did; dead: it did not, and is not to run again
        #[arg(long, value_enum)]
        outcome: Outcome,
        /// Who decides
        #[arg(long)]
        reviewer: String,
        /// Why
        #[arg(long, default_value = "", hide_default_value = true)]
        note: String,
    },
}

/// What a person decides.
#[derive(Clone, Copy, ValueEnum)]
enum Outcome {
    Retry,
    Succeeded,
    Dead,
}

impl Outcome {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Succeeded => "succeeded",
            Self::Dead => "dead",
        }
    }
}

/// Runs `dead`.
pub(crate) fn dead(args: &DeadArgs) -> ExitCode {
    let json = args.connect.json;
    let done = args.connect.client().and_then(|client| match &args.command {
        None => list(&client, "dead", &args.list, json),
        Some(_) if args.list.is_given() => Err(misplaced()),
        Some(DeadCommand::List(wanted)) => list(&client, "dead", wanted, json),
        Some(DeadCommand::Replay { ids }) => replay(&client, ids, json),
    });
    conclude(done, json)
}

/// Replays each of them; of those that are refused the first is told in the end, the others at once.
fn replay(client: &Client, ids: &[String], json: bool) -> Result<(), ClientError> {
    let mut outcome = Ok(());
    for id in ids {
        let replayed = client.ask(&Ask::new(Method::POST, Id::from(id.as_str()).path("/replay")));
        match replayed.and_then(|occurrence| tell(&occurrence, json)) {
            Ok(()) => {}
            Err(error) if ids.len() > 1 => {
                eprintln!("countwheel: {id}: {error}");
                outcome = outcome.and(Err(error));
            }
            Err(error) => return Err(error),
        }
    }
    outcome
}

/// Runs `held`.
pub(crate) fn held(args: &HeldArgs) -> ExitCode {
    let json = args.connect.json;
    let done = args.connect.client().and_then(|client| match &args.command {
        None => list(&client, "held", &args.list, json),
        Some(_) if args.list.is_given() => Err(misplaced()),
        Some(HeldCommand::List(wanted)) => list(&client, "held", wanted, json),
        Some(HeldCommand::Resolve { id, outcome, reviewer, note }) => {
            let decided = json!({"outcome": outcome.as_str(), "reviewer": reviewer, "note": note});
            tell(&client.ask(&Ask::new(Method::POST, id.path("/resolve")).json(&decided))?, json)
        }
    });
    conclude(done, json)
}

impl PileArgs {
    fn is_given(&self) -> bool {
        self.tenant.is_some() || self.extent.is_given()
    }
}

fn misplaced() -> ClientError {
    ClientError::Usage("--tenant, --limit, --all and --cursor belong to the listing: put them behind list".to_owned())
}

fn list(client: &Client, which: &str, wanted: &PileArgs, json: bool) -> Result<(), ClientError> {
    let ask = Ask::new(Method::GET, format!("/v1/{which}")).query("tenant", wanted.tenant.as_ref());
    let clocks = Clocks::new();
    walk(client, &ask, &wanted.extent, json, show::PILE, |item| show::pile_row(item, &clocks))
}

/// Where an occurrence stands now.
fn tell(occurrence: &Value, json: bool) -> Result<(), ClientError> {
    if json {
        return print(&format!("{occurrence}\n"));
    }
    print(&show::table(None, [show::occurrence_row(occurrence, &Clocks::new(), None)]))
}
