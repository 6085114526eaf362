//! The format of the console file. The VMM copies its guest's console to this file as text. When the file is
//! full, the VMM starts it again with the newest output, after a line with the number of bytes cut off. A
//! reader can thus place each byte in the console and follow a restarted file.

/// Most bytes of the file. A guest can write without end.
pub const CONSOLE_FILE_BYTES_MAX: u64 = 256 << 10;

const BEFORE: &str = "[podvisor: ";
const AFTER: &str = " bytes before this are cut off]\n";

/// Returns the first line of a file without the console's first `bytes` bytes.
pub fn cut_line(bytes: u64) -> String {
    format!("{BEFORE}{bytes}{AFTER}")
}

/// Splits a file's content into the number of console bytes cut off before it and the rest of the console. An
/// incomplete first line counts as nothing.
pub fn console_of(content: &[u8]) -> (u64, &[u8]) {
    let is_whole = content.contains(&b'\n');
    let begins = content.starts_with(BEFORE.as_bytes()) || BEFORE.as_bytes().starts_with(content);
    if begins && !is_whole { (0, &[]) } else { parse_cut_line(content).unwrap_or((0, content)) }
}

fn parse_cut_line(content: &[u8]) -> Option<(u64, &[u8])> {
    let end = content.iter().position(|byte| *byte == b'\n')? + 1;
    let line = std::str::from_utf8(&content[..end]).ok()?;
    let bytes = line.strip_prefix(BEFORE)?.strip_suffix(AFTER)?.parse().ok()?;
    Some((bytes, &content[end..]))
}

/// Returns the byte in a form safe for a terminal. A guest must not control the terminal of its console's
/// reader.
pub fn printable(byte: u8) -> u8 {
    match byte {
        b'\n' | b'\t' | b'\r' | b' '..=b'~' => byte,
        _ => b'?',
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_content_is_taken_apart_as_it_was_put_together() {
        let content = cut_line(4096) + "rest\n[podvisor: 7 bytes before this are cut off]\n";
        let rest = &content.as_bytes()[cut_line(4096).len()..];
        assert_eq!(console_of(content.as_bytes()), (4096, rest));
        for part in ["", "[", "[podvisor: ", "[podvisor: 40"] {
            assert_eq!(console_of(part.as_bytes()), (0, &b""[..]));
        }
        for whole in ["Linux", "Linux\n", "[podvisor: many bytes before this are cut off]\n"] {
            assert_eq!(console_of(whole.as_bytes()), (0, whole.as_bytes()));
        }
    }
}
