//! What an error reply means and what we do about it: one table.
//!
//! Whatever the reply, its connection is dropped and the one procedure runs again (owner, fence, look, go on); the
//! table decides how soon, whether only one stream is concerned, and which sentence a person reads.

/// When the procedure runs again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// At once: we know that it helps.
    Now,
    /// After a back-off that grows from 100 ms to 5 s: the server is expected to come round by itself.
    BackOff,
    /// Every 5 s: a person has to do something first.
    Slow,
}

/// Whom an error reply concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// The whole connection.
    Connection,
    /// The stream whose command was answered so; the others go on.
    Stream,
}

/// What to do about an error reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reaction {
    pub(crate) scope: Scope,
    pub(crate) pace: Pace,
    /// What is wrong and what to do, in one lower-case sentence.
    pub(crate) sentence: String,
}

/// The reaction to an error reply of this code (its first word) and the text behind it.
pub(super) fn react(code: &str, detail: &str) -> Reaction {
    use Pace::{BackOff, Slow};
    let (pace, sentence) = match code {
        "LOADING" => (BackOff, "redis is loading its data set: wait until it is ready"),
        "READONLY" => (
            BackOff,
            "this redis is a read-only replica: a fail-over is under way, or the address must name the primary",
        ),
        "MASTERDOWN" => {
            (BackOff, "this redis is a replica that lost its primary: restore the link or name the primary")
        }
        "TRYAGAIN" | "CLUSTERDOWN" => (BackOff, "the redis cluster is being rearranged or is down: wait or mend it"),
        "MOVED" | "ASK" => {
            (Slow, "this redis is a cluster node that does not hold our keys: give the address of a single primary")
        }
        "CROSSSLOT" => {
            (Slow, "this redis is a cluster, which is not supported yet: give the address of a single primary")
        }
        "BUSY" => (BackOff, "redis runs somebody's long script: wait for it or end it with SCRIPT KILL"),
        "UNKILLABLE" | "NOTBUSY" => (BackOff, "redis runs somebody's script that wrote already: wait for it"),
        "OOM" => (BackOff, "redis has reached maxmemory: free memory or raise the limit; nothing is lost meanwhile"),
        "MISCONF" => (BackOff, "redis cannot write to its disk, so a restart may lose entries: free space on its disk"),
        "NOREPLICAS" => (BackOff, "redis has fewer replicas than min-replicas-to-write: bring replicas back"),
        "NOAUTH" => (Slow, "redis asks for a password: put user and password into the redis url"),
        "WRONGPASS" => (Slow, "redis refuses user or password: correct them in the redis url"),
        "NOPERM" => (Slow, "the redis user lacks a permission: grant it what docs/REDIS.md lists"),
        "WRONGTYPE" => return wrong_type(),
        "EXECABORT" => (BackOff, "redis aborted a transaction"),
        _ => return unknown(code, detail),
    };
    let sentence = match (code, detail) {
        // These details name commands or nodes, which a person needs; none repeats what we sent.
        ("NOPERM" | "MOVED" | "ASK" | "EXECABORT" | "MISCONF", detail) if !detail.is_empty() => {
            format!("{sentence} ({})", clipped(detail))
        }
        _ => sentence.to_owned(),
    };
    Reaction { scope: Scope::Connection, pace, sentence }
}

fn wrong_type() -> Reaction {
    Reaction {
        scope: Scope::Stream,
        pace: Pace::Slow,
        sentence: "a key that is no stream stands in its place: rename or delete that key".to_owned(),
    }
}

fn unknown(code: &str, detail: &str) -> Reaction {
    let sentence = if detail.starts_with("unknown command") || detail.starts_with("Unknown") {
        format!("this redis lacks a command: 7.0 or newer is needed ({})", clipped(detail))
    } else {
        format!("redis answered with an error that is not expected here: {} {}", clipped(code), clipped(detail))
    };
    Reaction { scope: Scope::Connection, pace: Pace::BackOff, sentence }
}

/// At most 160 characters of a text from outside, on one line.
pub(super) fn clipped(text: &str) -> String {
    text.chars().take(160).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every row that the table must have: code, detail, pace, scope, a word of the remedy.
    const ROWS: [(&str, &str, Pace, Scope, &str); 20] = [
        ("LOADING", "Redis is loading the dataset in memory", Pace::BackOff, Scope::Connection, "loading"),
        ("READONLY", "You can't write against a read only replica.", Pace::BackOff, Scope::Connection, "primary"),
        ("MASTERDOWN", "Link with MASTER is down", Pace::BackOff, Scope::Connection, "primary"),
        ("MOVED", "3999 127.0.0.1:6381", Pace::Slow, Scope::Connection, "127.0.0.1:6381"),
        ("ASK", "3999 127.0.0.1:6381", Pace::Slow, Scope::Connection, "cluster"),
        ("TRYAGAIN", "Multiple keys request during rehashing", Pace::BackOff, Scope::Connection, "cluster"),
        ("CLUSTERDOWN", "The cluster is down", Pace::BackOff, Scope::Connection, "cluster"),
        ("CROSSSLOT", "Keys in request don't hash to the same slot", Pace::Slow, Scope::Connection, "cluster"),
        ("BUSY", "Redis is busy running a script.", Pace::BackOff, Scope::Connection, "SCRIPT KILL"),
        ("UNKILLABLE", "Sorry the script already executed", Pace::BackOff, Scope::Connection, "wait"),
        ("OOM", "command not allowed when used memory > 'maxmemory'.", Pace::BackOff, Scope::Connection, "maxmemory"),
        ("MISCONF", "Errors writing to the AOF file", Pace::BackOff, Scope::Connection, "disk"),
        ("NOREPLICAS", "Not enough good replicas to write.", Pace::BackOff, Scope::Connection, "replicas"),
        ("NOAUTH", "Authentication required.", Pace::Slow, Scope::Connection, "password"),
        ("WRONGPASS", "invalid username-password pair", Pace::Slow, Scope::Connection, "correct them"),
        ("NOPERM", "this user has no permissions to run 'xadd'", Pace::Slow, Scope::Connection, "xadd"),
        ("WRONGTYPE", "Operation against a key", Pace::Slow, Scope::Stream, "no stream"),
        ("EXECABORT", "Transaction discarded", Pace::BackOff, Scope::Connection, "discarded"),
        ("ERR", "unknown command 'XSETID'", Pace::BackOff, Scope::Connection, "7.0"),
        ("ERR", "something new", Pace::BackOff, Scope::Connection, "something new"),
    ];

    #[test]
    fn every_known_reply_has_its_reaction_and_a_remedy() {
        for (code, detail, pace, scope, word) in ROWS {
            let reaction = react(code, detail);
            assert_eq!((reaction.pace, reaction.scope), (pace, scope), "{code}");
            assert!(reaction.sentence.contains(word), "{code}: {}", reaction.sentence);
            assert!(reaction.sentence.starts_with(char::is_lowercase), "{code}: {}", reaction.sentence);
        }
    }

    #[test]
    fn a_text_from_outside_stays_short_and_on_one_line() {
        let reaction = react("ERR", &format!("a\r\nb{}", "x".repeat(1_000)));
        assert!(reaction.sentence.len() < 300 && !reaction.sentence.contains('\n'), "{}", reaction.sentence);
    }
}
