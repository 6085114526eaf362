//! Words replaced by STYLE.md with the field's own: *tell* in all its forms, and *machine* and *monitor* for
//! a VM and its VMM. In comments, strings and names, whole or as a part of a name.

use crate::Source;

/// The words, and their replacements.
const BANNED: &[(&[&str], &str)] = &[
    (
        &["tell", "tells", "told", "telling", "teller", "tellers", "untold"],
        "report, return, publish, send, say",
    ),
    (&["machine", "machines", "monitor", "monitors"], "VM, VMM, host or node"),
];

/// Others' terms with a banned word in them.
const TERMS: &[&str] = &[
    "machine-specific",
    "machine code",
    "machine-readable",
    // systemd's file (machine-id(5)).
    "etc/machine-id",
    // Firecracker's API.
    "machine-config",
    // ELF's e_machine.
    "MACHINE_X86_64",
];

/// Files with a need for the words, as beginnings of paths, and why.
const EXCEPTIONS: &[(&str, &str)] = &[("tests/tidy/src/words.rs", "the list of the words")];

/// One line for each line of the source with a banned word.
#[must_use]
pub fn check(source: &Source) -> Vec<String> {
    if EXCEPTIONS.iter().any(|(exception, _)| source.path.starts_with(exception)) {
        return Vec::new();
    }
    let mut breaches = Vec::new();
    for (at, line) in source.text.lines().enumerate() {
        let rest = TERMS.iter().fold(line.to_owned(), |line, term| line.replace(term, ""));
        let words = words(&rest);
        for (banned, instead) in BANNED {
            if let Some(word) = words.iter().find(|word| banned.contains(&word.as_str())) {
                breaches.push(format!("{}:{}: \"{word}\": {instead}", source.path, at + 1));
            }
        }
    }
    breaches
}

/// The words of a line in lower case; a name is taken apart at underscores and capitals.
fn words(line: &str) -> Vec<String> {
    let mut all = vec![String::new()];
    let mut after_small = false;
    for c in line.chars() {
        if !c.is_alphabetic() || (c.is_uppercase() && after_small) {
            all.push(String::new());
        }
        if c.is_alphabetic() {
            all.last_mut().expect("it has one from the start").extend(c.to_lowercase());
        }
        after_small = c.is_lowercase();
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        check(&Source { path: "a.rs".into(), text: text.into() })
    }

    #[test]
    fn banned_words_are_found_in_prose_strings_and_names() {
        for text in [
            "// The caller is told.",
            "let told = 1;",
            "fn tell_caller() {}",
            "struct FakeMachine;",
            "const UNTOLD_BYTES: u8 = 1;",
            "panic!(\"no monitor\")",
            "use vmm::machine_size;",
        ] {
            assert_eq!(found(text).len(), 1, "{text}");
        }
        assert_eq!(found("\n// Tells"), ["a.rs:2: \"tells\": report, return, publish, send, say"]);
    }

    #[test]
    fn other_words_and_the_terms_of_others_are_no_breach() {
        let text = "// An intelligent teletype; machinery.\n// Machine and a machine-specific register";
        assert_eq!(found(text).len(), 1);
        assert_eq!(found("// A machine-specific register, as machine code has it."), Vec::<String>::new());
    }
}
