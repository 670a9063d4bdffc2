//! Snapshots: what is refused, and that no bytes do harm. That they are right is the model's matter.

use std::sync::Arc;

use super::ZONES;
use crate::kernel::{
    image::{FORMAT, Head, Image, read},
    shard::{
        Config, Shard,
        model::{restore_anything, snapshots::grown},
    },
};

fn fresh() -> Shard {
    Shard::new(Config::default(), Arc::clone(&ZONES))
}

/// Images of a grown shard, each on its own.
fn images(seed: u64) -> Vec<Vec<u8>> {
    let bytes = grown(seed, &ZONES);
    let (mut rest, mut images) = (&bytes[..], Vec::new());
    while !rest.is_empty() {
        let before = rest;
        read(&mut rest).unwrap();
        images.push(before[..before.len() - rest.len()].to_vec());
    }
    images
}

#[test]
fn a_newer_format_is_refused_by_name() {
    let mut first = images(1).remove(0);
    let Image::Head(head) = read(&mut &first[..]).unwrap() else { panic!("a snapshot begins with its head") };
    let newer = Image::Head(Head { format: FORMAT + 1, ..head });
    first.clear();
    newer.encode(&mut first);
    let error = fresh().restore(&first).unwrap_err().to_string();
    assert!(error.contains(&format!("format {}", FORMAT + 1)) && error.contains("reads format"), "{error}");
}

#[test]
fn a_snapshot_that_is_cut_short_is_not_taken_for_whole() {
    let images = images(2);
    let mut shard = fresh();
    for image in &images[..images.len() - 1] {
        shard.restore(image).unwrap();
        assert!(shard.is_restoring());
        let error = shard.replay(2, &[1]).unwrap_err().to_string();
        assert!(error.contains("before the snapshot's end"), "{error}");
    }
    shard.restore(images.last().unwrap()).unwrap();
    assert!(!shard.is_restoring());
    shard.replay(2, &[1]).unwrap();
}

#[test]
fn an_image_that_is_missing_twice_there_or_out_of_order_is_refused_or_does_no_harm() {
    let images = images(3);
    for left_out in 0..images.len() {
        let rest: Vec<u8> =
            images.iter().enumerate().filter(|(i, _)| *i != left_out).flat_map(|(_, b)| b.clone()).collect();
        restore_anything(&rest, &ZONES);
    }
    for twice in 0..images.len() {
        let mut all = images.clone();
        all.insert(twice, images[twice].clone());
        restore_anything(&all.concat(), &ZONES);
        all.swap(twice, images.len() / 2);
        restore_anything(&all.concat(), &ZONES);
    }
}

#[test]
fn no_bytes_do_harm() {
    let mut state = 7_u64;
    let mut draw = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % below
    };
    for seed in 0..20 {
        let bytes = grown(seed, &ZONES);
        for _ in 0..150 {
            let mut bytes = bytes.clone();
            for _ in 0..1 + draw(3) {
                let at = draw(bytes.len());
                bytes[at] = [0, 1, 0xfb, 0xff, bytes[at] ^ 1 << draw(8)][draw(5)];
            }
            restore_anything(&bytes, &ZONES);
        }
    }
}
