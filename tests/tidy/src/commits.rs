//! Commits name their area, action and reason: `area: imperative`, and a body.
//!
//! It reads the commits after the one adding this file, because a rule cannot bind earlier ones; merges are
//! not read. A history too short for this (an archive, a shallow clone) is skipped by [`read`], with a
//! message.

use std::{path::Path, process::Command};

use anyhow::{Context, bail};

/// The file added with the rule.
const RULE: &str = "tests/tidy/src/commits.rs";

/// Characters of a subject.
const SUBJECT_MAX: usize = 72;

/// Most changed lines of a commit without a body.
const TRIVIAL_LINES: usize = 20;

/// First words other than an order: they name a thing or a state.
const NO_VERBS: &[&str] = &[
    "a", "an", "the", "plain", "only", "this", "that", "these", "those", "it", "its", "they", "we", "what",
    "who", "which", "why", "how", "when", "where", "if", "no", "not", "one", "two", "more", "less", "every",
    "each", "all", "some", "any", "now", "new", "is", "are", "was", "were", "has", "have", "had", "in", "on",
    "of", "for", "to", "with", "without", "from", "by", "at",
];

/// Verbs with a plain form ending like others' past tense, participle or third person.
const PLAIN_FORMS: &[&str] = &[
    "address", "access", "assess", "bring", "bypass", "compress", "cross", "discuss", "embed", "exceed",
    "express", "feed", "focus", "guess", "heed", "miss", "need", "pass", "press", "proceed", "process",
    "seed", "shed", "shred", "speed", "spring", "stress", "string", "succeed", "suppress", "swing", "toss",
    "witness", "canvas", "alias",
];

/// One commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    /// Enough of its hash to find it.
    pub id: String,
    /// The first line of its message.
    pub subject: String,
    /// The message below the subject, without trailers.
    pub body: String,
    /// Lines added and removed; those of renamed files as far as they changed.
    pub lines: usize,
}

/// One line for each commit breaking the form.
#[must_use]
pub fn check(commits: &[Commit]) -> Vec<String> {
    let wrong = |commit: &Commit| Some(format!("{} \"{}\": {}", commit.id, commit.subject, judge(commit)?));
    commits.iter().filter_map(wrong).collect()
}

/// Returns the first error in a commit.
fn judge(commit: &Commit) -> Option<String> {
    let subject = &commit.subject;
    let length = subject.chars().count();
    if length > SUBJECT_MAX {
        return Some(format!("{length} characters; {SUBJECT_MAX} must do"));
    }
    if subject.ends_with('.') {
        return Some("a subject has no full stop".into());
    }
    let Some((area, order)) = subject.split_once(": ") else {
        return Some("no area before it, as in \"vmm: …\"".into());
    };
    let in_area = |c: char| c.is_alphanumeric() || "/_-., ".contains(c);
    if area.is_empty() || !area.chars().all(in_area) || area.split(' ').count() > 3 {
        return Some(format!("{area:?} is no area: a crate, a folder or a document"));
    }
    let verb = order.split(|c: char| !c.is_alphanumeric() && c != '-').next().unwrap_or_default();
    if !is_order(verb) {
        return Some(format!("{verb:?} is no imperative"));
    }
    if commit.lines > TRIVIAL_LINES && commit.body.trim().is_empty() {
        return Some(format!("{} changed lines, and no body that says why", commit.lines));
    }
    None
}

/// Returns true if a word may be an imperative, by its form.
fn is_order(verb: &str) -> bool {
    let lower = verb.to_lowercase();
    let inflected = ["ed", "ing", "s"].iter().any(|end| lower.ends_with(end));
    let plain = PLAIN_FORMS.contains(&lower.trim_start_matches("re-")) || lower.len() <= 3;
    !verb.is_empty() && !NO_VERBS.contains(&lower.as_str()) && (!inflected || plain)
}

/// The commits since the rule, newest first; none, with a reason, if the history is too short.
///
/// # Errors
/// If git's output is unexpected.
pub fn read(root: &Path) -> anyhow::Result<Result<Vec<Commit>, String>> {
    let no_history =
        |reason: &str| Ok(Err(format!("no history back to the commit that added {RULE}: {reason}")));
    match git(root, &["rev-parse", "--is-shallow-repository"]) {
        Err(error) => return no_history(&format!("{error:#}")),
        Ok(shallow) if shallow.trim() != "false" => return no_history("the clone is shallow"),
        Ok(_) => {}
    }
    let added = git(root, &["log", "--follow", "--diff-filter=A", "--format=%H", "--", RULE])?;
    let Some(base) = added.lines().last() else { return no_history("the file is not tracked") };
    let range = format!("{base}..HEAD");
    let format = "--format=%x1e%h%x1f%s%x1f%b%x1f";
    let log = git(root, &["log", "--no-merges", "--no-show-signature", "-M", "--numstat", format, &range])?;
    let commits = log.split('\x1e').skip(1).map(parse);
    Ok(Ok(commits.collect::<anyhow::Result<_>>()?))
}

fn git(root: &Path, arguments: &[&str]) -> anyhow::Result<String> {
    let output = Command::new("git").arg("-C").arg(root).args(arguments).output().context("git")?;
    if !output.status.success() {
        bail!("git {}: {}", arguments[0], String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// One record of the log: hash, subject, body, then a line for each file.
fn parse(record: &str) -> anyhow::Result<Commit> {
    let parts: Vec<_> = record.split('\x1f').collect();
    let [id, subject, body, files] = parts[..] else { bail!("git log: {record:?}") };
    let is_trailer =
        |line: &str| line.split_once(": ").is_some_and(|(key, _)| key.ends_with("-by") || key == "Change-Id");
    // A binary file counts "-".
    let count = |line: &str| {
        line.split('\t').take(2).filter_map(|number| number.parse::<usize>().ok()).sum::<usize>()
    };
    Ok(Commit {
        id: id.to_owned(),
        subject: subject.to_owned(),
        body: body.lines().filter(|line| !is_trailer(line)).collect::<Vec<_>>().join("\n"),
        lines: files.lines().map(count).sum(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(subject: &str, body: &str, lines: usize) -> Vec<String> {
        check(&[Commit { id: "abc".into(), subject: subject.into(), body: body.into(), lines }])
    }

    #[test]
    fn subjects_that_break_the_form_are_found() {
        for (subject, reason) in [
            ("name the VM a VM", "no area before it, as in \"vmm: …\""),
            ("vmm: name the VM a VM.", "a subject has no full stop"),
            ("vmm: named the VM a VM", "\"named\" is no imperative"),
            ("vmm: names the VM a VM", "\"names\" is no imperative"),
            ("vmm: naming the VM a VM", "\"naming\" is no imperative"),
            ("vmm: the VM is named a VM", "\"the\" is no imperative"),
            ("vmm: what a VM is", "\"what\" is no imperative"),
            ("vmm: ", "\"\" is no imperative"),
            (
                "why we call it so, at length: name the VM a VM",
                "\"why we call it so, at length\" is no area: a crate, a folder or a document",
            ),
        ] {
            assert_eq!(found(subject, "", 1), [format!("abc \"{subject}\": {reason}")]);
        }
        let long = format!("vmm: name {}", "x".repeat(63));
        assert_eq!(found(&long, "", 1), [format!("abc \"{long}\": 73 characters; 72 must do")]);
    }

    #[test]
    fn a_larger_change_without_a_body_is_found() {
        let subject = "vmm: name the VM a VM";
        assert_eq!(
            found(subject, " \n", 21),
            [format!("abc \"{subject}\": 21 changed lines, and no body that says why")]
        );
        assert_eq!(found(subject, "", 20), Vec::<String>::new());
        assert_eq!(found(subject, "It is one.", 900), Vec::<String>::new());
    }

    #[test]
    fn good_subjects_are_no_breach() {
        for subject in [
            "vmm: name the VM a VM",
            "runtime/pod, runtime/cri: pass an exit's reason as a type",
            "guest kernel: use two pages",
            "STYLE: fix one vocabulary, whole sentences and the form of commits",
            "tests/tidy: need no cargo: read manifests",
            "net: process, then bring up each link",
            "image: add a lock",
        ] {
            assert_eq!(found(subject, "", 1), Vec::<String>::new());
        }
    }

    #[test]
    fn a_record_of_the_log_is_read_without_trailers() {
        let record = "abc\x1fvmm: name it\x1fBecause.\n\nSigned-off-by: A <a@b>\n\x1f\n\n3\t4\ta.rs\n-\t-\tb.png\n1\t0\t{c => d}/e.rs\n";
        let commit = parse(record).unwrap();
        assert_eq!((commit.id.as_str(), commit.subject.as_str(), commit.lines), ("abc", "vmm: name it", 8));
        assert_eq!(commit.body, "Because.\n");
        assert!(parse("abc\x1fvmm").is_err());
    }
}
