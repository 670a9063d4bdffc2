//! Who may write the streams of a shard: a verdict on the hash `<prefix>:engine`.
//!
//! The hash holds `data_id` and `rehearsal` for the whole prefix, and `shard:<n>:generation` and `shard:<n>:owner` for
//! each shard. It is read and written under WATCH, together with the fence, so that no two owners share a generation.

use std::collections::BTreeMap;

use redis::Value;

use super::link::text;

/// Who we are.
#[derive(Clone, Debug)]
pub(super) struct Identity {
    /// Names the data directory.
    pub(super) data_id: String,
    /// Whether its clock is a rehearsal's.
    pub(super) rehearsal: bool,
    /// Which shard of it.
    pub(super) shard: u16,
    /// Names this process start.
    pub(super) owner: String,
    /// Whether a prefix of another directory may be taken over.
    pub(super) adopt: bool,
}

/// What the hash says of us.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It shows us under this generation already.
    Ours,
    /// Write us in.
    Claim,
    /// Log this generation at least, and come again.
    GenerationNeeded(u64),
    /// Somebody took over from us.
    Fenced(String),
    /// Never write here until a person has decided.
    Foreign(String),
}

impl Identity {
    fn field(&self, what: &str) -> String {
        format!("shard:{}:{what}", self.shard)
    }

    /// What to write into the hash.
    pub(super) fn fields(&self, generation: u64) -> [(String, String); 4] {
        [
            ("data_id".to_owned(), self.data_id.clone()),
            ("rehearsal".to_owned(), u8::from(self.rehearsal).to_string()),
            (self.field("generation"), generation.to_string()),
            (self.field("owner"), self.owner.clone()),
        ]
    }

    /// Judges the hash at `key`; `first` until the claim of this generation has succeeded once.
    pub(super) fn judge(&self, key: &str, hash: &BTreeMap<&str, &Value>, generation: u64, first: bool) -> Verdict {
        let field = |name: &str| hash.get(name).and_then(|value| text(value));
        if let Some(rehearsal) = field("rehearsal")
            && (rehearsal == "1") != self.rehearsal
        {
            return Verdict::Foreign(rehearsal_mismatch(key, self.rehearsal));
        }
        if let Some(data_id) = field("data_id")
            && data_id != self.data_id
            && !self.adopt
        {
            return Verdict::Foreign(format!(
                "{key} says that these streams belong to data directory {data_id}, ours is {}: \
                 use another --redis-prefix, or --adopt-redis if that directory is lost",
                self.data_id
            ));
        }
        let Some(shown) = field(&self.field("generation")) else { return Verdict::Claim };
        let Ok(shown) = shown.parse::<u64>() else {
            return Verdict::Foreign(format!(
                "{key} holds {:?} as generation of shard {}: somebody wrote there; mend or delete the field",
                super::reply::clipped(shown),
                self.shard
            ));
        };
        let owner = field(&self.field("owner"));
        match (owner == Some(self.owner.as_str()), shown.cmp(&generation)) {
            (true, std::cmp::Ordering::Equal) => Verdict::Ours,
            // No engine leaves its name out: somebody deleted ours.
            (false, std::cmp::Ordering::Equal) if owner.is_none() && !first => Verdict::Claim,
            (_, std::cmp::Ordering::Less) => Verdict::Claim,
            (true, std::cmp::Ordering::Greater) => Verdict::GenerationNeeded(shown.saturating_add(1)),
            (false, _) if first => Verdict::GenerationNeeded(shown.saturating_add(1)),
            (false, _) => Verdict::Fenced(format!(
                "shard {} of {key} was taken over by owner {} under generation {shown}, we are owner {} under \
                 generation {generation}: two engines run on copies of one data directory; stop one of them",
                self.shard,
                owner.unwrap_or("nobody"),
                self.owner
            )),
        }
    }
}

fn rehearsal_mismatch(key: &str, ours: bool) -> String {
    let (theirs, ours) = if ours { ("real schedules", "a rehearsal") } else { ("a rehearsal", "real schedules") };
    format!("{key} says that these streams belong to {theirs}, this engine runs {ours}: use another --redis-prefix")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn us() -> Identity {
        let (data_id, owner) = ("d1".to_owned(), "me".to_owned());
        Identity { data_id, rehearsal: false, shard: 3, owner, adopt: false }
    }

    fn judge(us: &Identity, fields: &[(&str, &str)], first: bool) -> Verdict {
        let values: Vec<_> =
            fields.iter().map(|(name, value)| (*name, Value::BulkString(value.as_bytes().to_vec()))).collect();
        us.judge("cw:engine", &values.iter().map(|(name, value)| (*name, value)).collect(), 5, first)
    }

    const GENERATION: &str = "shard:3:generation";
    const OWNER: &str = "shard:3:owner";

    #[test]
    fn an_empty_or_older_hash_is_claimed() {
        assert_eq!(judge(&us(), &[], true), Verdict::Claim);
        assert_eq!(judge(&us(), &[("data_id", "d1"), ("rehearsal", "0")], false), Verdict::Claim);
        assert_eq!(judge(&us(), &[(GENERATION, "4"), (OWNER, "other")], true), Verdict::Claim);
        assert_eq!(judge(&us(), &[(GENERATION, "5"), (OWNER, "me")], true), Verdict::Ours);
    }

    #[test]
    fn no_two_owners_share_a_generation() {
        for shown in ["5", "6"] {
            let fields = [(GENERATION, shown), (OWNER, "other")];
            let at_least = shown.parse::<u64>().unwrap() + 1;
            assert_eq!(judge(&us(), &fields, true), Verdict::GenerationNeeded(at_least));
            let Verdict::Fenced(reason) = judge(&us(), &fields, false) else { panic!("must be fenced by {shown}") };
            assert!(reason.contains("owner other") && reason.contains("owner me"), "{reason}");
        }
    }

    #[test]
    fn an_owner_whose_name_was_deleted_writes_it_again() {
        assert_eq!(judge(&us(), &[(GENERATION, "5")], false), Verdict::Claim);
        assert_eq!(judge(&us(), &[(GENERATION, "5")], true), Verdict::GenerationNeeded(6));
        assert!(matches!(judge(&us(), &[(GENERATION, "6")], false), Verdict::Fenced(_)));
    }

    #[test]
    fn a_foreign_directory_is_refused_unless_it_is_adopted() {
        let fields = [("data_id", "d2"), (GENERATION, "9"), (OWNER, "other")];
        let Verdict::Foreign(reason) = judge(&us(), &fields, true) else { panic!("must be refused") };
        assert!(reason.contains("d2") && reason.contains("--adopt-redis"), "{reason}");
        let adopting = Identity { adopt: true, ..us() };
        assert_eq!(judge(&adopting, &fields, true), Verdict::GenerationNeeded(10));
    }

    #[test]
    fn rehearsal_and_real_refuse_each_other_even_when_adopting() {
        for rehearsal in [false, true] {
            let us = Identity { rehearsal, adopt: true, ..us() };
            let shown = if rehearsal { "0" } else { "1" };
            assert!(matches!(judge(&us, &[("rehearsal", shown)], true), Verdict::Foreign(_)));
        }
    }

    #[test]
    fn garbage_in_the_hash_is_no_panic_and_no_claim() {
        let Verdict::Foreign(reason) = judge(&us(), &[(GENERATION, "-1\n")], true) else { panic!("must be refused") };
        assert!(reason.contains("generation of shard 3"), "{reason}");
    }
}
