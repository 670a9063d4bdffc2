//! `countwheel schedule`: make, read, change and end schedules of a running server.

use std::{path::PathBuf, process::ExitCode};

use clap::{Args, Subcommand, ValueEnum, builder::NonEmptyStringValueParser};
use serde_json::{Map, Value, json};
use ureq::http::Method;

use super::{
    conclude,
    connect::ConnectArgs,
    error::ClientError,
    http::{Ask, Client, segment},
    import, lists,
    local::Clocks,
    print, show,
    spec::SpecArgs,
};

/// Options of `schedule`.
#[derive(Args)]
pub(crate) struct ScheduleArgs {
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(subcommand)]
    command: Box<ScheduleCommand>,
}

#[derive(Subcommand)]
enum ScheduleCommand {
    /// Make a schedule
    Create {
        #[command(flatten)]
        spec: SpecArgs,
        /// Idempotency key: the same call again finds the same schedule
        #[arg(long)]
        key: Option<String>,
    },
    /// Show a schedule
    Get(Id),
    /// List schedules
    List(lists::ScheduleListArgs),
    /// Change the fields that are given
    Update {
        #[command(flatten)]
        id: Id,
        #[command(flatten)]
        spec: SpecArgs,
        /// Set a field back to its default; may be repeated
        #[arg(long, value_name = "FIELD")]
        reset: Vec<String>,
        /// Only if this is still its version
        #[arg(long, value_name = "VERSION")]
        if_match: Option<u32>,
        /// What becomes of occurrences that are due and not claimed
        #[arg(long, value_enum)]
        pending: Option<Pending>,
    },
    /// Stop firing until it is resumed
    Pause(Id),
    /// Go on with the first instant after now
    Resume(Id),
    /// End it; its history stays
    Cancel(Id),
    /// Make an occurrence now
    Trigger {
        #[command(flatten)]
        id: Id,
        /// Idempotency key: the same call within 24 h is the same occurrence
        #[arg(long)]
        key: Option<String>,
    },
    /// Run the instants of a past stretch again
    Backfill {
        #[command(flatten)]
        id: Id,
        /// From this instant on (RFC 3339)
        #[arg(long, value_name = "T")]
        from: String,
        /// Before this instant (RFC 3339), at most now
        #[arg(long, value_name = "T")]
        to: String,
        /// Idempotency key
        #[arg(long)]
        key: Option<String>,
    },
    /// Make a schedule of each line of a file of JSON specs (- for stdin)
    Import {
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// List the occurrences of a schedule
    Occurrences(lists::OccurrenceListArgs),
}

/// Which schedule.
#[derive(Args, Clone)]
pub(super) struct Id {
    /// The schedule's id
    #[arg(value_name = "ID", value_parser = NonEmptyStringValueParser::new())]
    id: String,
}

impl Id {
    /// `/v1/schedules/{id}` and what follows.
    pub(super) fn path(&self, rest: &str) -> String {
        format!("/v1/schedules/{}{rest}", segment(&self.id))
    }
}

/// What becomes of occurrences of the old version that are due.
#[derive(Clone, Copy, ValueEnum)]
enum Pending {
    Cancel,
    Keep,
}

impl Pending {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Cancel => "cancel",
            Self::Keep => "keep",
        }
    }
}

/// Runs the command.
pub(crate) fn run(args: ScheduleArgs) -> ExitCode {
    let json = args.connect.json;
    conclude(carry_out(&args), json)
}

fn carry_out(args: &ScheduleArgs) -> Result<(), ClientError> {
    let (client, json) = (args.connect.client()?, args.connect.json);
    let tell = |ask: Ask| tell(&client, &ask, json);
    match &*args.command {
        ScheduleCommand::Create { spec, key } => {
            let body = Value::Object(spec.object()?);
            tell(Ask::new(Method::POST, "/v1/schedules").header("Idempotency-Key", key.as_ref()).json(&body))
        }
        ScheduleCommand::Get(id) => tell(Ask::new(Method::GET, id.path(""))),
        ScheduleCommand::Update { id, spec, reset, if_match, pending } => {
            let body = changes(spec.object()?, reset)?;
            let ask = Ask::new(Method::PATCH, id.path("")).query("pending", pending.map(Pending::as_str));
            tell(ask.header("If-Match", *if_match).json(&body))
        }
        ScheduleCommand::Pause(id) => tell(Ask::new(Method::POST, id.path("/pause"))),
        ScheduleCommand::Resume(id) => tell(Ask::new(Method::POST, id.path("/resume"))),
        ScheduleCommand::Cancel(id) => tell(Ask::new(Method::DELETE, id.path(""))),
        ScheduleCommand::Trigger { id, key } => {
            tell(Ask::new(Method::POST, id.path("/trigger")).header("Idempotency-Key", key.as_ref()))
        }
        ScheduleCommand::Backfill { id, from, to, key } => {
            let ask = Ask::new(Method::POST, id.path("/backfill")).header("Idempotency-Key", key.as_ref());
            tell(ask.json(&json!({"from": from, "to": to})))
        }
        ScheduleCommand::List(list) => lists::schedules(&client, list, json),
        ScheduleCommand::Occurrences(list) => lists::occurrences(&client, list, json),
        ScheduleCommand::Import { file } => import::run(&client, file, json),
    }
}

/// The body of an update: what is given, and null for what goes back to its default.
fn changes(mut given: Map<String, Value>, reset: &[String]) -> Result<Value, ClientError> {
    for field in reset {
        if given.insert(field.clone(), Value::Null).is_some() {
            let why = format!("--reset {field}: the field is given a value too: choose one of the two");
            return Err(ClientError::Usage(why));
        }
    }
    if given.is_empty() {
        return Err(ClientError::Usage("nothing to change: give a field, --reset or --spec".to_owned()));
    }
    Ok(Value::Object(given))
}

/// Asks, and shows the answer.
fn tell(client: &Client, ask: &Ask, json: bool) -> Result<(), ClientError> {
    let answer = client.ask(ask)?;
    if json {
        return print(&format!("{answer}\n"));
    }
    print(&match answer.get("schedule") {
        Some(_) => show::described(&answer, &Clocks::new()),
        None => show::fields(&answer),
    })
}
