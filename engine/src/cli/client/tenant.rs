//! `countwheel tenant`: a tenant's weight and quotas on a running server.

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
};
use crate::cli::values;

/// Options of `tenant`.
#[derive(Args)]
pub(crate) struct TenantArgs {
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(subcommand)]
    command: TenantCommand,
}

#[derive(Subcommand)]
enum TenantCommand {
    /// Show weight and quotas
    Get {
        #[arg(value_name = "TENANT", value_parser = values::name)]
        id: String,
    },
    /// Change what is given, keep the rest
    Set {
        #[arg(value_name = "TENANT", value_parser = values::name)]
        id: String,
        #[command(flatten)]
        change: Change,
    },
}

/// What a tenant may have; a quota is a number or `none`.
#[derive(Args)]
#[group(required = true, multiple = true)]
struct Change {
    /// Its share where tenants wait for each other
    #[arg(long, value_name = "N")]
    weight: Option<u32>,
    /// How many schedules
    #[arg(long, value_name = "N|none", value_parser = quota)]
    schedules: Option<Value>,
    /// How many releases a second
    #[arg(long, value_name = "N|none", value_parser = quota)]
    trigger_per_second: Option<Value>,
    /// How many runs at a time
    #[arg(long, value_name = "N|none", value_parser = quota)]
    concurrent_runs: Option<Value>,
    /// How many caught-up or backfilled occurrences a second
    #[arg(long, value_name = "N|none", value_parser = quota)]
    catch_up_per_second: Option<Value>,
    /// How many retries a day
    #[arg(long, value_name = "N|none", value_parser = quota)]
    retry_budget: Option<Value>,
}

/// A number, or `none` for unlimited.
pub(super) fn quota(text: &str) -> Result<Value, String> {
    match text {
        "none" => Ok(Value::Null),
        _ => text.parse::<u64>().map(Value::from).map_err(|_| "give a whole number, or none".to_owned()),
    }
}

/// Runs the command.
pub(crate) fn run(args: TenantArgs) -> ExitCode {
    let json = args.connect.json;
    conclude(args.connect.client().and_then(|client| carry_out(&client, &args.command, json)), json)
}

fn carry_out(client: &Client, command: &TenantCommand, json: bool) -> Result<(), ClientError> {
    let answer = match command {
        TenantCommand::Get { id } => client.ask(&Ask::new(Method::GET, path(id)))?,
        TenantCommand::Set { id, change } => {
            // What is put is the whole: what is not changed is read first.
            let mut tenant = client.ask(&Ask::new(Method::GET, path(id)))?;
            change.apply(&mut tenant);
            let body = json!({"weight": tenant["weight"], "quotas": tenant["quotas"]});
            client.ask(&Ask::new(Method::PUT, path(id)).json(&body))?
        }
    };
    print(&if json { format!("{answer}\n") } else { show::fields(&answer) })
}

fn path(id: &str) -> String {
    format!("/v1/tenants/{}", segment(id))
}

impl Change {
    fn apply(&self, tenant: &mut Value) {
        let quotas = [
            ("schedules", &self.schedules),
            ("trigger_per_second", &self.trigger_per_second),
            ("concurrent_runs", &self.concurrent_runs),
            ("catch_up_per_second", &self.catch_up_per_second),
            ("retry_budget", &self.retry_budget),
        ];
        if !tenant.is_object() {
            *tenant = json!({});
        }
        if !tenant["quotas"].is_object() {
            tenant["quotas"] = json!({});
        }
        for (quota, value) in quotas {
            if let Some(value) = value {
                tenant["quotas"][quota] = value.clone();
            }
        }
        if let Some(weight) = self.weight {
            tenant["weight"] = weight.into();
        }
    }
}
