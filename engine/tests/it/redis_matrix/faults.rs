//! The faults: what is done to Redis, and what ends it.

use std::{io::Write, thread, time::Duration};

use super::Bed;
use crate::{redis_server::RedisServer, redis_view};

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Server,
    Refusal,
    Network,
    Removal,
}

pub(super) struct Fault {
    pub(super) kind: Kind,
    pub(super) name: &'static str,
    pub(super) options: &'static [&'static str],
    pub(super) strike: fn(&mut Bed),
}

const STREAM: &str = "cw:{mail.0}:strict";

const fn fault(kind: Kind, name: &'static str, strike: fn(&mut Bed)) -> Fault {
    Fault { kind, name, options: &[], strike }
}

pub(super) const FAULTS: [Fault; 20] = [
    Fault { options: &["--appendfsync", "everysec"], ..fault(Kind::Server, "killed, everysec", killed) },
    Fault { options: &["--appendfsync", "always"], ..fault(Kind::Server, "killed, always", killed) },
    fault(Kind::Server, "back without its data", emptied),
    fault(Kind::Server, "stopped for two seconds", stopped),
    fault(Kind::Server, "replica promoted", promoted),
    fault(Kind::Server, "loading", loading),
    fault(Kind::Refusal, "out of memory", out_of_memory),
    fault(Kind::Refusal, "read only", read_only),
    fault(Kind::Refusal, "busy with a script", busy),
    fault(Kind::Refusal, "wrong type", wrong_type),
    fault(Kind::Network, "answers cut", answers_cut),
    fault(Kind::Network, "delayed", |bed| frozen(bed, 1_500)),
    fault(Kind::Network, "half open", |bed| frozen(bed, 6_500)),
    fault(Kind::Removal, "FLUSHALL", |bed| bed.run("FLUSHALL")),
    fault(Kind::Removal, "DEL while it is read", |bed| bed.run(&format!("DEL {STREAM}"))),
    fault(Kind::Removal, "XGROUP DESTROY", |bed| bed.run(&format!("XGROUP DESTROY {STREAM} g"))),
    fault(Kind::Removal, "XTRIM by somebody", trimmed),
    fault(Kind::Removal, "XDEL by somebody", deleted),
    fault(Kind::Removal, "owner key deleted", |bed| bed.run("DEL cw:engine")),
    fault(Kind::Removal, "FLUSHALL again and again", flushed_again_and_again),
];

fn killed(bed: &mut Bed) {
    bed.redis.kill();
    bed.work(700);
    bed.redis.restart();
}

fn emptied(bed: &mut Bed) {
    bed.redis.kill();
    bed.redis.restart_empty();
}

fn stopped(bed: &mut Bed) {
    bed.redis.pause();
    thread::sleep(Duration::from_secs(2));
    bed.redis.resume();
}

/// The replica is made a primary while the old one still accepts: what that one takes from then on is lost.
fn promoted(bed: &mut Bed) {
    let replica = RedisServer::start(&[]);
    redis_view::run(&replica.url(), &format!("REPLICAOF 127.0.0.1 {}", bed.redis.port()));
    let is_linked = || {
        let info: String =
            redis::cmd("INFO").arg("replication").query(&mut redis_view::client(&replica.url())).unwrap();
        info.contains("master_link_status:up")
    };
    while !is_linked() {
        bed.work(50);
    }
    redis_view::run(&replica.url(), "REPLICAOF NO ONE");
    bed.work(600);
    bed.proxy.point_to(replica.port());
    bed.redis.kill();
    bed.life.url = replica.url();
    bed.redis = replica;
}

fn loading(bed: &mut Bed) {
    bed.redis.stop();
    let aof = std::fs::read_dir(bed.redis.dir().join("appendonlydir")).unwrap().flatten().map(|entry| entry.path());
    let aof = aof.filter(|path| path.to_string_lossy().ends_with(".incr.aof")).last().unwrap();
    let mut file = std::fs::OpenOptions::new().append(true).open(aof).unwrap();
    file.write_all("*3\r\n$3\r\nSET\r\n$1\r\nx\r\n$1\r\ny\r\n".repeat(1_500_000).as_bytes()).unwrap();
    drop(file);
    bed.redis.launch();
}

fn out_of_memory(bed: &mut Bed) {
    bed.run("CONFIG SET maxmemory 1");
    bed.work(1_000);
    bed.run("CONFIG SET maxmemory 0");
}

/// The other server has nothing, so that this one's data is gone too.
fn read_only(bed: &mut Bed) {
    let other = RedisServer::start(&[]);
    bed.run(&format!("REPLICAOF 127.0.0.1 {}", other.port()));
    bed.work(1_200);
    bed.run("REPLICAOF NO ONE");
}

fn busy(bed: &mut Bed) {
    bed.run("CONFIG SET busy-reply-threshold 50");
    let url = bed.redis.url();
    let script = thread::spawn(move || {
        let loops = "local function now() local t = redis.call('TIME') return t[1] * 1000 + t[2] / 1000 end \
                     local from = now() while now() - from < 1500 do end return 1";
        let _: i64 = redis::cmd("EVAL").arg(loops).arg(0).query(&mut redis_view::client(&url)).unwrap();
    });
    bed.work(1_000);
    script.join().unwrap();
}

fn wrong_type(bed: &mut Bed) {
    bed.run(&format!("SET {STREAM} theirs"));
    bed.work(1_500);
    bed.run(&format!("DEL {STREAM}"));
}

/// At the start of an answer, within a header, within a bulk string, and far on.
fn answers_cut(bed: &mut Bed) {
    for bytes in [0, 1, 9, 14, 47, 200, 1_003] {
        let cuts = bed.proxy.cuts();
        bed.proxy.cut_answers_after(bytes);
        while bed.proxy.cuts() == cuts {
            bed.work(50);
        }
    }
}

fn frozen(bed: &mut Bed, ms: u64) {
    bed.proxy.freeze(true);
    bed.work(ms);
    bed.proxy.freeze(false);
}

/// Entries that no worker has read yet go, and others with them.
fn trimmed(bed: &mut Bed) {
    bed.wait_for_unread();
    bed.run(&format!("XTRIM {STREAM} MAXLEN 0"));
}

fn deleted(bed: &mut Bed) {
    let ids = bed.wait_for_unread();
    for id in ids {
        bed.run(&format!("XDEL {STREAM} {id}"));
    }
}

fn flushed_again_and_again(bed: &mut Bed) {
    for _ in 0..20 {
        bed.run("FLUSHALL");
        bed.work(100);
    }
}
