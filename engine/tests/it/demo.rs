//! The demo of the real binary ends by itself with nothing absent, killed child or not.

use crate::server::countwheel;

fn run(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = countwheel().arg("demo").args(arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn a_demo_ends_by_itself_with_nothing_absent() {
    let (code, said, errors) = run(&["--seconds", "6"]);
    assert_eq!(code, Some(0), "{said}{errors}");
    assert!(said.lines().any(|line| line.starts_with("due ") && line.ends_with("absent 0")), "{said}");
    assert!(!said.contains('\u{1b}'), "plain lines in a pipe");
}

#[test]
fn a_demo_whose_engine_is_killed_mid_burst_ends_with_nothing_absent() {
    let (code, said, errors) = run(&["--crash", "--seconds", "9"]);
    assert_eq!(code, Some(0), "{said}{errors}");
    assert!(said.contains("killed (SIGKILL)"), "{said}");
    assert!(said.lines().any(|line| line.starts_with("due 5") && line.ends_with("absent 0")), "{said}");
}
