//! `countwheel wal inspect|verify|repair DIR`: what an operator can ask of a log, and do to one that is damaged.
//!
//! DIR is the directory of one log, or a data directory with `shard-NNNN/` in it. Exit codes: 0 fine, 1 damaged or
//! unreadable, 2 wrong usage. `inspect` and `verify` change nothing and may be run while the log is in use.

use std::fmt::{self, Display};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use countwheel_wal::{Ending, Inspection, OpenError, OsFs, Repair, inspect, repair, verify};

use crate::{kernel::time::UnixMs, shell::directory::look_over};

/// The arguments of `countwheel wal`.
#[derive(Clone, Debug, Args)]
pub struct WalArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Clone, Debug, Subcommand)]
enum Action {
    /// Say what a log holds, segment by segment; may be run while it is in use
    Inspect {
        /// A log's directory, or a data directory with shard-NNNN/ in it
        dir: PathBuf,
    },
    /// Check every byte in use; may be run while it is in use; exits with 1 if anything is damaged
    Verify {
        /// A log's directory, or a data directory with shard-NNNN/ in it
        dir: PathBuf,
    },
    /// Give up everything from the first damage on; copies of it are kept in quarantine/
    Repair {
        /// A log's directory, or a data directory with shard-NNNN/ in it
        dir: PathBuf,
    },
}

/// What is done to one log: the text to print and the exit code it asks for.
type Act = fn(&Path) -> Result<(String, u8), OpenError>;

const FINE: u8 = 0;
const DAMAGED: u8 = 1;
const USAGE: u8 = 2;

/// Runs the command for every log in the directory and says on standard error what is wrong.
#[must_use]
pub fn run(args: WalArgs) -> ExitCode {
    let (dir, act): (_, Act) = match &args.action {
        Action::Inspect { dir } => (dir, |log| {
            let found = inspect(&OsFs, log)?;
            let is_sound = !matches!(found.ending, Ending::Damaged(_)) && found.foreign.is_empty();
            Ok((inspection(log, &found), if is_sound { FINE } else { DAMAGED }))
        }),
        Action::Verify { dir } => (dir, |log| Ok((verification(log, &verify(&OsFs, log)?), FINE))),
        Action::Repair { dir } => (dir, |log| Ok((report(log, &repair(&OsFs, log)?), FINE))),
    };
    let logs = match logs_in(dir) {
        Ok(logs) => logs,
        Err(complaint) => {
            eprintln!("countwheel: {complaint}");
            return ExitCode::from(USAGE);
        }
    };
    let mut worst = FINE;
    for log in logs {
        let code = match act(&log) {
            Ok((text, code)) => {
                print!("{text}");
                code
            }
            Err(error) => {
                eprintln!("countwheel: {}: {}", log.display(), complaint(&error));
                DAMAGED
            }
        };
        worst = worst.max(code);
    }
    if let (Action::Verify { .. }, false) = (&args.action, dir.join("wal").is_dir())
        && let Err(error) = look_over(dir, |log| inspect(&OsFs, log).ok().map(|found| found.log_id))
    {
        eprintln!("countwheel: {error}");
        worst = DAMAGED;
    }
    ExitCode::from(worst)
}

/// What is wrong, and what to do about it besides what was just done.
fn complaint(error: &OpenError) -> String {
    match error {
        OpenError::Corrupt(damage) => {
            let dir = damage.dir.display();
            format!("{damage}: to give up everything from there on, run 'countwheel wal repair {dir}'")
        }
        other => other.to_string(),
    }
}

/// The logs in a directory, in order.
fn logs_in(dir: &Path) -> Result<Vec<PathBuf>, String> {
    let cannot = |why: &dyn Display| format!("{}: {why}: name a log's directory or a data directory", dir.display());
    if dir.join("wal").is_dir() {
        return Ok(vec![dir.to_path_buf()]);
    }
    let entries = std::fs::read_dir(dir).map_err(|error| cannot(&error))?;
    let mut logs = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| cannot(&error))?;
        if entry.file_name().to_str().is_some_and(is_shard_name) {
            logs.push(entry.path());
        }
    }
    logs.sort();
    if logs.is_empty() { Err(cannot(&"it holds neither wal/ nor shard-NNNN/")) } else { Ok(logs) }
}

fn is_shard_name(name: &str) -> bool {
    name.strip_prefix("shard-").is_some_and(|number| number.len() == 4 && number.bytes().all(|b| b.is_ascii_digit()))
}

fn inspection(log: &Path, found: &Inspection) -> String {
    let mut text = format!("{}\n  log {}, made {}\n", log.display(), found.log_id, at(found.created_wall_ms));
    for segment in &found.segments {
        let name = segment.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        text += &format!(
            "  {name}  segment {}, records {} to {} ({}), batches {}, bytes {} of {}, generation {}, {} to {}, {}\n",
            segment.segment_seq,
            segment.first_lsn,
            segment.last_lsn,
            segment.records,
            segment.batches,
            segment.used_bytes,
            segment.file_bytes,
            segment.generation,
            at(segment.created_wall_ms),
            at(segment.last_wall_ms),
            if segment.is_sealed { "sealed" } else { "open" },
        );
    }
    for path in &found.temporary {
        text += &format!("  temporary {}\n", path.display());
    }
    for path in &found.foreign {
        text += &format!("  foreign {}: move it away, the log does not open beside it\n", path.display());
    }
    for path in &found.quarantined {
        text += &format!("  quarantined {}\n", path.display());
    }
    text + &format!("  last record {}: {}\n", found.last, Told(&found.ending))
}

fn verification(log: &Path, found: &Inspection) -> String {
    let records: u64 = found.segments.iter().map(|segment| segment.records).sum();
    format!(
        "{}: fine: {records} records up to {} in {} segments: {}\n",
        log.display(),
        found.last,
        found.segments.len(),
        Told(&found.ending)
    )
}

fn report(log: &Path, done: &Repair) -> String {
    if done.damages.is_empty() && done.foreign.is_empty() {
        return format!("{}: nothing to repair: records up to {}\n", log.display(), done.kept);
    }
    let mut text = format!("{}\n", log.display());
    for damage in &done.damages {
        let (path, offset) = (damage.path.display(), damage.offset);
        text += &format!("  {path} at byte {offset}: expected {}, found {}\n", damage.expected, damage.found);
    }
    for path in &done.foreign {
        text += &format!("  {} is none of the log's: moved away\n", path.display());
    }
    for path in &done.quarantined {
        text += &format!("  kept a copy in {}\n", path.display());
    }
    for segment in &done.whole_segments {
        text += &format!(
            "  {} is a whole segment, given up only for the damage before it: records {} to {}\n",
            segment.copy.display(),
            segment.first,
            segment.last
        );
    }
    text + &match done.given_up {
        Some((first, last)) => format!("  gave up records {first} to {last}; the last is now {}\n", done.kept),
        None => format!("  gave up no record that is known; the last is {}\n", done.kept),
    }
}

fn at(wall_ms: u64) -> UnixMs {
    UnixMs(i64::try_from(wall_ms).unwrap_or(i64::MAX))
}

struct Told<'a>(&'a Ending);

impl Display for Told<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Ending::Empty => f.write_str("no segment yet"),
            Ending::Sealed => f.write_str("closed"),
            Ending::Open => f.write_str("in use, or its process was killed"),
            Ending::Torn { path, offset, until } => write!(
                f,
                "in use, or its last write was cut short: bytes {offset} to {until} of {} will be cut off",
                path.display()
            ),
            Ending::Damaged(damage) => write!(f, "damaged: {damage}"),
            other => write!(f, "{other:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use clap::Parser;
    use countwheel_wal::{Log, Options, Records, Urgency};

    use crate::shell::directory::Directory;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        wal: WalArgs,
    }

    fn run_on(action: &str, dir: &Path) -> ExitCode {
        run(Command::parse_from(["wal".as_ref(), action.as_ref(), dir.as_os_str()]).wal)
    }

    fn make_log(dir: &Path) {
        let mut options = Options::default();
        (options.segment_bytes, options.reserve_bytes) = (16 << 10, 0);
        let (log, _) = Log::open(dir, Arc::new(OsFs), options, Arc::new(|| {}), &mut |_| Ok(())).unwrap();
        let mut records = Records::new();
        records.push(1, b"one");
        for _ in 0..5 {
            let last = log.append(&records, Urgency::Prompt).unwrap();
            // A batch each, and so a segment each.
            while log.durable() < last {
                std::thread::yield_now();
            }
        }
        log.close().unwrap();
    }

    #[test]
    fn damage_is_found_in_any_shard_and_repaired() {
        let dir = tempfile::tempdir().unwrap();
        let mut directory = Directory::open(dir.path(), Some(2), 2, false).unwrap();
        let shards = ["shard-0000", "shard-0001"].map(|shard| dir.path().join(shard));
        shards.iter().for_each(|shard| make_log(shard));
        directory.bind_logs(shards.map(|shard| inspect(&OsFs, &shard).unwrap().log_id).into()).unwrap();
        assert_eq!(run_on("verify", dir.path()), ExitCode::SUCCESS);
        assert_eq!(run_on("inspect", &dir.path().join("shard-0001")), ExitCode::SUCCESS);
        let segment = dir.path().join("shard-0001/wal/00000000000000000001.wal");
        let mut bytes = std::fs::read(&segment).unwrap();
        bytes[4_096 + 106] ^= 1;
        std::fs::write(&segment, bytes).unwrap();
        assert_eq!(run_on("verify", dir.path()), ExitCode::from(DAMAGED));
        assert_eq!(run_on("inspect", dir.path()), ExitCode::from(DAMAGED));
        assert_eq!(run_on("repair", dir.path()), ExitCode::SUCCESS);
        assert_eq!(run_on("verify", dir.path()), ExitCode::SUCCESS);
        std::fs::remove_file(dir.path().join("IDENTITY")).unwrap();
        assert_eq!(run_on("verify", dir.path()), ExitCode::from(DAMAGED), "an engine would refuse it");
    }

    #[test]
    fn a_person_is_told_what_to_do_next_and_what_was_given_up() {
        let dir = tempfile::tempdir().unwrap();
        make_log(dir.path());
        let stray = dir.path().join("wal/notes.txt");
        std::fs::write(&stray, "mine").unwrap();
        let said = complaint(&verify(&OsFs, dir.path()).unwrap_err());
        assert!(said.contains("notes.txt is a file with another name") && said.contains("move it away"), "{said}");
        assert!(inspection(dir.path(), &inspect(&OsFs, dir.path()).unwrap()).contains("foreign"));
        std::fs::remove_file(&stray).unwrap();

        let segment = dir.path().join("wal/00000000000000000002.wal");
        let mut bytes = std::fs::read(&segment).unwrap();
        bytes[4_096 + 106] ^= 1;
        std::fs::write(&segment, bytes).unwrap();
        let said = complaint(&verify(&OsFs, dir.path()).unwrap_err());
        assert!(said.contains("wal repair") && !said.contains("wal verify"), "{said}");
        let said = report(dir.path(), &repair(&OsFs, dir.path()).unwrap());
        assert_eq!(said.matches("is a whole segment").count(), 3, "{said}");
        assert!(
            said.contains("records 3 to 3") && said.contains("gave up records 2 to 5; the last is now 1"),
            "{said}"
        );
    }

    #[test]
    fn a_directory_without_a_log_is_wrong_usage() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("shard-1")).unwrap();
        assert_eq!(run_on("verify", dir.path()), ExitCode::from(USAGE));
        assert_eq!(run_on("verify", &dir.path().join("nowhere")), ExitCode::from(USAGE));
    }
}
