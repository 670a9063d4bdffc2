//! Who may call: tokens by their SHA-256, in a file that is read at the start and again when asked to.
//!
//! A line is `<role> <sha256 of the token in hex> [label]`; the roles are `admin`, `tenant:<id>` and `worker:<queue>`.
//! `#` begins a comment. A line that does not read refuses the whole file: who is let in by half a file is anyone's
//! guess. Every digest is compared with every line, in constant time.

use std::{
    fmt, fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
};

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::kernel::id::check_name;

/// Longest file that is read: some hundred thousand tokens.
const FILE_BYTES: u64 = 32 << 20;

/// What the bearer of a token may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Everything.
    Admin,
    /// Everything about this tenant's schedules and occurrences.
    Tenant(Arc<str>),
    /// Taking what this queue has.
    Worker(Arc<str>),
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Admin => f.write_str("admin"),
            Self::Tenant(tenant) => write!(f, "tenant:{tenant}"),
            Self::Worker(queue) => write!(f, "worker:{queue}"),
        }
    }
}

impl Role {
    fn read(text: &str) -> Result<Self, String> {
        if text == "admin" {
            return Ok(Self::Admin);
        }
        let (kind, name) = text.split_once(':').unwrap_or((text, ""));
        let role = match kind {
            "tenant" => Self::Tenant(name.into()),
            "worker" => Self::Worker(name.into()),
            // It may be a token that was put into the file by mistake: it is not repeated.
            _ => return Err("the first word is no role: give admin, tenant:<id> or worker:<queue>".to_owned()),
        };
        check_name(name).map_err(|problem| format!("the name behind {kind}: {problem}"))?;
        Ok(role)
    }
}

/// Why a file of tokens was not taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum TokensError {
    /// It does not read.
    #[error("{path}: {source}: check that it is there and that this user may read it")]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's word.
        source: io::Error,
    },
    /// A line is wrong.
    #[error("{path}: line {line}: {problem}")]
    Line {
        /// The file.
        path: PathBuf,
        /// Which line, from 1.
        line: usize,
        /// What is wrong, and what would do.
        problem: String,
    },
    /// It lets nobody in.
    #[error("{path}: there is no token in it: add a line `<role> <sha256 of the token in hex> [label]`")]
    Empty {
        /// The file.
        path: PathBuf,
    },
}

/// The lines of a file of tokens.
#[derive(Debug, Default)]
struct Tokens {
    lines: Vec<([u8; 32], Role)>,
}

impl Tokens {
    /// The number of the line that does not read, and what is wrong with it.
    fn read(text: &str) -> Result<Self, (usize, String)> {
        let mut tokens = Self::default();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (digest, role) = token_line(line).map_err(|problem| (index + 1, problem))?;
            if tokens.lines.iter().any(|(known, _)| *known == digest) {
                return Err((index + 1, "this token stands in an earlier line: a token has one role".to_owned()));
            }
            tokens.lines.push((digest, role));
        }
        Ok(tokens)
    }

    /// Looks at every line, so that the time it takes tells nothing.
    fn role_of(&self, token: &str) -> Option<Role> {
        let digest: [u8; 32] = Sha256::digest(token).into();
        let mut found = None;
        for (known, role) in &self.lines {
            if bool::from(known.ct_eq(&digest)) {
                found = Some(role);
            }
        }
        found.cloned()
    }
}

fn token_line(line: &str) -> Result<([u8; 32], Role), String> {
    // The label is for people: whatever stands behind the digest.
    let mut words = line.split_whitespace();
    let role = Role::read(words.next().unwrap_or_default())?;
    let hex = words.next().ok_or("the digest is missing: write `<role> <sha256 of the token in hex> [label]`")?;
    let digest = digest_of(hex).ok_or_else(|| {
        format!("the digest has {} characters and must be 64 hex digits: give the sha256 of the token", hex.len())
    })?;
    Ok((digest, role))
}

fn digest_of(hex: &str) -> Option<[u8; 32]> {
    if hex.len() != 64 || !hex.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let mut digest = [0; 32];
    for (byte, pair) in digest.iter_mut().zip(hex.as_bytes().chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(digest)
}

/// A file of tokens as it was last read.
#[derive(Debug)]
pub(crate) struct TokenFile {
    path: PathBuf,
    tokens: RwLock<Arc<Tokens>>,
}

impl TokenFile {
    /// Reads the file.
    ///
    /// # Errors
    /// See [`TokensError`].
    pub(crate) fn load(path: impl Into<PathBuf>) -> Result<Self, TokensError> {
        let path = path.into();
        let tokens = RwLock::new(Arc::new(read(&path)?));
        Ok(Self { path, tokens })
    }

    /// Reads the file again, and tells how many tokens there are now. If it is not in order, those known stay.
    ///
    /// # Errors
    /// See [`TokensError`].
    pub(crate) fn reload(&self) -> Result<usize, TokensError> {
        let tokens = read(&self.path)?;
        let count = tokens.lines.len();
        *self.tokens.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(tokens);
        Ok(count)
    }

    /// What the bearer of `token` may do.
    pub(crate) fn role_of(&self, token: &str) -> Option<Role> {
        let tokens = Arc::clone(&self.tokens.read().unwrap_or_else(PoisonError::into_inner));
        tokens.role_of(token)
    }
}

fn read(path: &Path) -> Result<Tokens, TokensError> {
    let failed = |source| TokensError::Io { path: path.to_owned(), source };
    let about = fs::metadata(path).map_err(failed)?;
    if about.len() > FILE_BYTES {
        return Err(failed(io::Error::other(format!("{} bytes are more than {FILE_BYTES}", about.len()))));
    }
    let mode = about.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        tracing::warn!(path = %path.display(), "others may open the tokens file (mode {mode:o}): chmod 600 it");
    }
    let text = fs::read_to_string(path).map_err(failed)?;
    let tokens =
        Tokens::read(&text).map_err(|(line, problem)| TokensError::Line { path: path.to_owned(), line, problem })?;
    if tokens.lines.is_empty() {
        return Err(TokensError::Empty { path: path.to_owned() });
    }
    Ok(tokens)
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use super::*;

    fn hex(token: &str) -> String {
        let mut hex = String::new();
        for byte in Sha256::digest(token) {
            write!(hex, "{byte:02x}").unwrap();
        }
        hex
    }

    #[test]
    fn a_token_has_the_role_of_its_line() {
        let text = format!(
            "# people\nadmin {} ops, on call\n\n  tenant:acme {}\nworker:mail\t{} w1\n",
            hex("a"),
            hex("b").to_uppercase(),
            hex("c")
        );
        let tokens = Tokens::read(&text).unwrap();
        assert_eq!(tokens.role_of("a"), Some(Role::Admin));
        assert_eq!(tokens.role_of("b"), Some(Role::Tenant("acme".into())));
        assert_eq!(tokens.role_of("c"), Some(Role::Worker("mail".into())));
        assert_eq!(tokens.role_of(""), None);
        assert_eq!(tokens.role_of(&hex("a")), None, "the digest is no token");
    }

    #[test]
    fn a_line_that_does_not_read_refuses_the_file_by_its_number() {
        let good = hex("a");
        for (line, part) in [
            ("admin".to_owned(), "the digest is missing"),
            (format!("root {good}"), "the first word is no role"),
            (format!("tenant {good}"), "is empty"),
            (format!("tenant:ACME {good}"), "the character 'A'"),
            (format!("worker: {good}"), "is empty"),
            (format!("admin {}", &good[1..]), "has 63 characters"),
            (format!("admin {}g", &good[1..]), "must be 64 hex digits"),
            (format!("tenant:acme {good}"), "earlier line"),
        ] {
            let (number, problem) = Tokens::read(&format!("admin {good}\n#\n{line}\n")).unwrap_err();
            assert_eq!(number, 3, "{line}");
            assert!(problem.contains(part), "{line}: {problem}");
        }
    }

    #[test]
    fn a_file_that_is_not_in_order_leaves_those_in_who_were() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("tokens");
        assert!(matches!(TokenFile::load(&path), Err(TokensError::Io { .. })));
        fs::write(&path, "# nobody\n").unwrap();
        assert!(matches!(TokenFile::load(&path), Err(TokensError::Empty { .. })));
        fs::write(&path, format!("admin {}\n", hex("a"))).unwrap();
        let file = TokenFile::load(&path).unwrap();
        fs::write(&path, "admin nonsense\n").unwrap();
        let error = file.reload().unwrap_err().to_string();
        assert!(error.contains("line 1: ") && error.contains("hex digits"), "{error}");
        assert_eq!(file.role_of("a"), Some(Role::Admin));
        fs::write(&path, format!("tenant:acme {}\nadmin {}\n", hex("b"), hex("c"))).unwrap();
        assert_eq!(file.reload().unwrap(), 2);
        assert_eq!((file.role_of("a"), file.role_of("c")), (None, Some(Role::Admin)));
    }
}
