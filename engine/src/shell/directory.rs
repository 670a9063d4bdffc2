//! The data directory: locked for one engine, and known by its IDENTITY for what it was made for.

use std::{
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
    sync::Arc,
};

use countwheel_wal::{DirLock, Fs, LockError, LogId, OsFs, write_file_atomically};
use uuid::Uuid;

use crate::error::OpenError;

const HEAD: &str = "countwheel data directory";
const FORMAT: u32 = 1;

/// What a data directory was made for. Written when it is made, and once more when its shards' logs are there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// Names the directory to the queue, so that no other directory's engine writes to its streams.
    pub(crate) id: Uuid,
    /// How many shards; fixed for ever.
    pub(crate) shards: u16,
    /// Whether its clock is a rehearsal's.
    pub(crate) rehearsal: bool,
    /// The id of each shard's log, in order; empty until all of them have been made.
    pub(crate) logs: Vec<LogId>,
}

/// A locked data directory.
pub(crate) struct Directory {
    pub(crate) path: PathBuf,
    pub(crate) identity: Identity,
    pub(crate) fs: Arc<dyn Fs>,
    _lock: DirLock,
}

impl std::fmt::Debug for Directory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Directory").field("path", &self.path).field("identity", &self.identity).finish_non_exhaustive()
    }
}

impl Directory {
    /// Locks `path` and reads what it is, or makes it: with `shards` shards, else `default_shards`.
    pub(crate) fn open(
        path: &Path,
        shards: Option<u16>,
        default_shards: u16,
        rehearsal: bool,
    ) -> Result<Self, OpenError> {
        let fs: Arc<dyn Fs> = Arc::new(OsFs);
        if path.exists() && !path.is_dir() {
            let remedy = "give the path of a directory".to_owned();
            return Err(OpenError::Refused { path: path.to_owned(), what: "it is not a directory".to_owned(), remedy });
        }
        make_dir(path).map_err(|source| io(path, source))?;
        refuse_open_doors(path)?;
        let lock = DirLock::acquire(path).map_err(|error| match error {
            LockError::Held { holder, .. } => OpenError::Locked { path: path.to_owned(), holder },
            LockError::Io { path, source } => io(&path, source),
            other => io(path, std::io::Error::other(other)),
        })?;
        let file = path.join("IDENTITY");
        let identity = match fs::read_to_string(&file) {
            Ok(text) => Identity::parse(&text).map_err(|what| refused(&file, what))?,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                refuse_strangers(path)?;
                let mut id = [0; 16];
                getrandom::fill(&mut id).map_err(|error| io(&file, std::io::Error::other(error)))?;
                let id = uuid::Builder::from_random_bytes(id).into_uuid();
                let shards = shards.unwrap_or(default_shards);
                let identity = Identity { id, shards, rehearsal, logs: Vec::new() };
                write_file_atomically(&*fs, &file, identity.to_string().as_bytes())
                    .map_err(|source| io(&file, source))?;
                identity
            }
            Err(error) if error.kind() == ErrorKind::InvalidData => {
                return Err(refused(&file, "it is not text".to_owned()));
            }
            Err(source) => return Err(io(&file, source)),
        };
        identity.check(path, shards, rehearsal)?;
        let directory = Self { path: path.to_owned(), identity, fs, _lock: lock };
        directory.identity.refuse_missing_shards(path)?;
        Ok(directory)
    }

    /// Compares the shards' logs with those that the directory was made with, or notes them the first time.
    pub(crate) fn bind_logs(&mut self, logs: Vec<LogId>) -> Result<(), OpenError> {
        if self.identity.logs.is_empty() {
            self.identity.logs = logs;
            let file = self.path.join("IDENTITY");
            return write_file_atomically(&*self.fs, &file, self.identity.to_string().as_bytes())
                .map_err(|source| io(&file, source));
        }
        self.identity.compare_logs(&self.path, &logs)
    }

    pub(crate) fn shard_path(&self, shard: u16) -> PathBuf {
        shard_path(&self.path, shard)
    }
}

fn shard_path(path: &Path, shard: u16) -> PathBuf {
    path.join(format!("shard-{shard:04}"))
}

/// Looks, without a lock and without changing anything, whether a data directory says what it is and holds the shards it
/// names; `log_of` gives the id of the log in a shard's directory, where it can be read.
#[cfg(feature = "server")]
pub(crate) fn look_over(path: &Path, log_of: impl Fn(&Path) -> Option<LogId>) -> Result<(), OpenError> {
    let file = path.join("IDENTITY");
    let text = fs::read_to_string(&file).map_err(|source| io(&file, source))?;
    let identity = Identity::parse(&text).map_err(|what| refused(&file, what))?;
    identity.refuse_missing_shards(path)?;
    let shards = 0..u16::try_from(identity.logs.len()).unwrap_or(0);
    // A log that cannot be read has been told of: it is compared with itself.
    let found: Vec<LogId> =
        shards.map(|n| log_of(&shard_path(path, n)).unwrap_or(identity.logs[usize::from(n)])).collect();
    identity.compare_logs(path, &found)
}

/// The shards' directories of a data directory, in order, without a lock and without changing anything.
#[cfg(feature = "server")]
pub(crate) fn shard_paths(path: &Path) -> Result<Vec<PathBuf>, OpenError> {
    let file = path.join("IDENTITY");
    let text = fs::read_to_string(&file).map_err(|source| io(&file, source))?;
    let identity = Identity::parse(&text).map_err(|what| refused(&file, what))?;
    identity.refuse_missing_shards(path)?;
    Ok((0..identity.shards).map(|shard| shard_path(path, shard)).collect())
}

impl Identity {
    /// A shard that was there once is not made anew in silence: its schedules would be gone.
    fn refuse_missing_shards(&self, path: &Path) -> Result<(), OpenError> {
        let shards = if self.logs.is_empty() { 0 } else { self.shards };
        match (0..shards).map(|shard| shard_path(path, shard)).find(|path| !path.is_dir()) {
            Some(path) => Err(OpenError::Refused {
                path,
                what: "the shard's directory is missing".to_owned(),
                remedy: "put it back from where it went, or from a copy".to_owned(),
            }),
            None => Ok(()),
        }
    }

    /// Each shard's directory holds the log that it was made with.
    fn compare_logs(&self, path: &Path, found: &[LogId]) -> Result<(), OpenError> {
        let strange = self.logs.iter().zip(found).position(|(known, found)| known != found);
        match strange.and_then(|shard| u16::try_from(shard).ok()) {
            Some(shard) => Err(OpenError::Refused {
                path: shard_path(path, shard),
                what: format!("it holds another log than shard {shard}'s"),
                remedy: "put the shards' directories back under their own names".to_owned(),
            }),
            None => Ok(()),
        }
    }

    fn check(&self, path: &Path, shards: Option<u16>, rehearsal: bool) -> Result<(), OpenError> {
        let refuse = |what: String, remedy: &str| {
            Err(OpenError::Refused { path: path.to_owned(), what, remedy: remedy.to_owned() })
        };
        if let Some(asked) = shards.filter(|asked| *asked != self.shards) {
            return refuse(
                format!("the directory was made with {} shards, {asked} were asked for", self.shards),
                "the number is fixed when a directory is made: leave it out, or choose another directory",
            );
        }
        match (self.rehearsal, rehearsal) {
            (true, false) => refuse(
                "the directory holds a rehearsal".to_owned(),
                "open it with --rehearse-from, or choose another directory for real work",
            ),
            (false, true) => refuse("the directory holds real work".to_owned(), "rehearse in a directory of its own"),
            _ => Ok(()),
        }
    }

    fn parse(text: &str) -> Result<Self, String> {
        let (body, crc) = text.trim_end().rsplit_once('\n').ok_or("it is cut short")?;
        let mut lines = body.lines();
        if lines.next() != Some(HEAD) {
            return Err("it is not a Countwheel data directory's".to_owned());
        }
        let format = field(lines.next(), "format")?;
        if format != FORMAT.to_string() {
            return Err(format!("it has format {format}, this version reads format {FORMAT}"));
        }
        if crc != format!("crc32c {:08x}", checksum(body)) {
            return Err("its checksum does not match: it was damaged or edited".to_owned());
        }
        let id = field(lines.next(), "id")?;
        let shards = field(lines.next(), "shards")?;
        let rehearsal = field(lines.next(), "rehearsal")?;
        let logs = lines.map(|line| log_id(field(Some(line), "log")?)).collect::<Result<Vec<_>, _>>()?;
        if !logs.is_empty() && logs.len().to_string() != shards {
            return Err(format!("it names {} logs for {shards} shards", logs.len()));
        }
        Ok(Self {
            logs,
            id: Uuid::try_parse(id).map_err(|_| format!("its id {id:?} is no UUID"))?,
            shards: shards.parse().ok().filter(|n| *n > 0).ok_or_else(|| format!("{shards:?} shards"))?,
            rehearsal: rehearsal.parse().map_err(|_| format!("rehearsal {rehearsal:?}"))?,
        })
    }
}

impl std::fmt::Display for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { id, shards, rehearsal, logs } = self;
        let mut body = format!("{HEAD}\nformat {FORMAT}\nid {id}\nshards {shards}\nrehearsal {rehearsal}");
        for log in logs {
            body.push_str(&format!("\nlog {}", Uuid::from_bytes(log.0)));
        }
        writeln!(f, "{body}\ncrc32c {:08x}", checksum(&body))
    }
}

fn checksum(body: &str) -> u32 {
    crc32c::crc32c(body.as_bytes())
}

fn field<'a>(line: Option<&'a str>, name: &str) -> Result<&'a str, String> {
    line.and_then(|line| line.strip_prefix(name)?.strip_prefix(' ')).ok_or_else(|| format!("it has no {name}"))
}

fn log_id(text: &str) -> Result<LogId, String> {
    Uuid::try_parse(text).map(|id| LogId(id.into_bytes())).map_err(|_| format!("its log {text:?} is no UUID"))
}

/// Only its owner may look into it: it holds tenants' payloads.
fn make_dir(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Whoever can write here can put other logs in the place of ours, or links.
fn refuse_open_doors(path: &Path) -> Result<(), OpenError> {
    use std::os::unix::fs::MetadataExt;
    let meta = fs::metadata(path).map_err(|source| io(path, source))?;
    let us = rustix::process::geteuid().as_raw();
    let refused =
        |what: String, remedy: &str| Err(OpenError::Refused { path: path.to_owned(), what, remedy: remedy.to_owned() });
    if meta.mode() & 0o022 != 0 {
        let what = format!("others than its owner may write there (mode {:o})", meta.mode() & 0o7777);
        return refused(what, "run 'chmod go-w' on it, or choose a directory of the engine's own");
    }
    if meta.uid() != us && meta.uid() != 0 {
        let what = format!("it belongs to user {}, the engine runs as user {us}", meta.uid());
        return refused(what, "run 'chown' on it, or run the engine as its owner");
    }
    Ok(())
}

/// A directory without IDENTITY must not hold somebody's log.
fn refuse_strangers(path: &Path) -> Result<(), OpenError> {
    for entry in fs::read_dir(path).map_err(|source| io(path, source))? {
        let name = entry.map_err(|source| io(path, source))?.file_name();
        if name.to_string_lossy().starts_with("shard-") {
            return Err(OpenError::Refused {
                path: path.to_owned(),
                what: "it has shards and no IDENTITY".to_owned(),
                remedy: "restore IDENTITY from a copy, or choose an empty directory".to_owned(),
            });
        }
    }
    Ok(())
}

fn io(path: &Path, source: std::io::Error) -> OpenError {
    OpenError::Io { path: path.to_owned(), source }
}

fn refused(path: &Path, what: String) -> OpenError {
    let remedy = "open it with the version that made it, restore it from a copy, or choose another directory";
    OpenError::Refused { path: path.to_owned(), what, remedy: remedy.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity() -> Identity {
        Identity {
            id: Uuid::from_bytes([7; 16]),
            shards: 2,
            rehearsal: false,
            logs: vec![LogId([1; 16]), LogId([2; 16])],
        }
    }

    #[test]
    fn an_identity_is_read_as_it_was_written() {
        assert_eq!(Identity::parse(&identity().to_string()), Ok(identity()));
    }

    #[test]
    fn a_damaged_or_newer_identity_is_refused_by_name() {
        let text = identity().to_string();
        for (bad, why) in [
            (text.replace("shards 2", "shards 5"), "checksum"),
            (text.replace("format 1", "format 2"), "format 2"),
            (text.replace(HEAD, "something else"), "not a Countwheel"),
            (String::new(), "cut short"),
        ] {
            assert!(Identity::parse(&bad).unwrap_err().contains(why), "{bad}");
        }
    }

    #[test]
    fn a_shard_that_is_missing_or_another_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let logs = vec![LogId([1; 16]), LogId([2; 16])];
        let mut made = Directory::open(dir.path(), Some(2), 8, false).unwrap();
        made.bind_logs(logs.clone()).unwrap();
        for shard in 0..2 {
            fs::create_dir(made.shard_path(shard)).unwrap();
        }
        drop(made);
        let mut again = Directory::open(dir.path(), None, 8, false).unwrap();
        assert_eq!(again.identity.logs, logs);
        again.bind_logs(logs.clone()).unwrap();
        let swapped = again.bind_logs(logs.into_iter().rev().collect()).unwrap_err().to_string();
        assert!(swapped.contains("another log than shard 0's"), "{swapped}");
        assert!(look_over(dir.path(), |_| None).is_ok());
        let seen = look_over(dir.path(), |_| Some(LogId([2; 16]))).unwrap_err().to_string();
        assert!(seen.contains("another log than shard 0's"), "{seen}");
        fs::remove_dir(again.shard_path(1)).unwrap();
        drop(again);
        assert!(look_over(dir.path(), |_| None).unwrap_err().to_string().contains("missing"));
        let missing = Directory::open(dir.path(), None, 8, false).unwrap_err().to_string();
        assert!(missing.contains("shard-0001") && missing.contains("missing"), "{missing}");
    }

    #[test]
    fn a_directory_that_others_may_write_to_or_own_is_refused() {
        use std::os::unix::fs::{PermissionsExt, chown};
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("data");
        let open = || Directory::open(&path, Some(1), 8, false).map(|made| made.identity.shards);
        assert_eq!(open().unwrap(), 1);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o700, "made for its owner alone");
        for (mode, is_fine) in [(0o755, true), (0o775, false), (0o757, false), (0o777, false), (0o700, true)] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let opened = open().map_err(|error| error.to_string());
            assert_eq!(opened.is_ok(), is_fine, "{mode:o}: {opened:?}");
            assert!(is_fine || opened.unwrap_err().contains("chmod go-w"));
        }
        if chown(&path, Some(4_242), None).is_err() {
            return println!("skipped: only root can give a directory away");
        }
        let error = open().unwrap_err().to_string();
        assert!(error.contains("user 4242") && error.contains("chown"), "{error}");
    }

    #[test]
    fn a_directory_is_made_once_and_refuses_what_it_was_not_made_for() {
        let dir = tempfile::tempdir().unwrap();
        let made = Directory::open(dir.path(), Some(2), 8, false).unwrap().identity;
        assert_eq!(Directory::open(dir.path(), None, 8, false).unwrap().identity, made);
        let other = Directory::open(dir.path(), Some(3), 8, false).err().unwrap().to_string();
        assert!(other.contains("made with 2 shards, 3 were asked for"), "{other}");
        let rehearsal = Directory::open(dir.path(), None, 8, true).err().unwrap().to_string();
        assert!(rehearsal.contains("real work"), "{rehearsal}");
        let held = Directory::open(dir.path(), None, 8, false).unwrap();
        assert!(matches!(Directory::open(dir.path(), None, 8, false), Err(OpenError::Locked { .. })));
        drop(held);
        fs::remove_file(dir.path().join("IDENTITY")).unwrap();
        fs::create_dir(dir.path().join("shard-0000")).unwrap();
        let stranger = Directory::open(dir.path(), None, 8, false).err().unwrap().to_string();
        assert!(stranger.contains("no IDENTITY"), "{stranger}");
    }
}
