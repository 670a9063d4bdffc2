//! `countwheel queue`: a queue's properties on a running server.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use ureq::http::Method;

use super::{
    conclude,
    connect::ConnectArgs,
    error::ClientError,
    http::{Ask, Client, segment},
    print, show,
    tenant::quota,
};
use crate::cli::values;

/// Options of `queue`.
#[derive(Args)]
pub(crate) struct QueueArgs {
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(subcommand)]
    command: QueueCommand,
}

#[derive(Subcommand)]
enum QueueCommand {
    /// Show its properties
    Get {
        #[arg(value_name = "QUEUE", value_parser = values::name)]
        id: String,
    },
    /// Change what is given, keep the rest
    Set {
        #[arg(value_name = "QUEUE", value_parser = values::name)]
        id: String,
        #[command(flatten)]
        change: Change,
    },
}

/// What a queue is.
#[derive(Args)]
#[group(required = true, multiple = true)]
struct Change {
    /// Whether workers claim and complete what they take
    #[arg(long, value_name = "BOOL")]
    tracked: Option<bool>,
    /// How many caught-up or backfilled occurrences a second it takes
    #[arg(long, value_name = "N|none", value_parser = quota)]
    catch_up_per_second: Option<Value>,
}

/// Runs the command.
pub(crate) fn run(args: QueueArgs) -> ExitCode {
    let json = args.connect.json;
    conclude(args.connect.client().and_then(|client| carry_out(&client, &args.command, json)), json)
}

fn carry_out(client: &Client, command: &QueueCommand, json: bool) -> Result<(), ClientError> {
    let path = |id: &str| format!("/v1/queues/{}", segment(id));
    let answer = match command {
        QueueCommand::Get { id } => client.ask(&Ask::new(Method::GET, path(id)))?,
        QueueCommand::Set { id, change } => {
            // What is put is the whole: what is not changed is read first.
            let queue = client.ask(&Ask::new(Method::GET, path(id)))?;
            let tracked = change.tracked.map_or_else(|| queue["tracked"].clone(), Value::from);
            let rate = change.catch_up_per_second.clone().unwrap_or_else(|| queue["catch_up_per_second"].clone());
            let body = json!({"tracked": tracked, "catch_up_per_second": rate});
            client.ask(&Ask::new(Method::PUT, path(id)).json(&body))?
        }
    };
    print(&if json { format!("{answer}\n") } else { show::fields(&answer) })
}
