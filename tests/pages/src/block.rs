//! Fenced blocks of a page, by heading and order. Pure.

/// A fenced block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// The heading above, without its marks. It is empty at the top of a page.
    pub heading: String,
    /// The word behind the fence, or nothing.
    pub language: String,
    /// Number of the fence's line, from 1.
    pub line: usize,
    /// The lines between the fences.
    pub text: String,
}

impl Block {
    /// Whether readers paste it: commands, or a file with its place in the first line.
    #[must_use]
    pub fn is_pasted(&self) -> bool {
        ["sh", "console"].contains(&self.language.as_str()) || self.place().is_some()
    }

    /// The file's place, if the first line has it: `# /etc/podvisor/config.toml`.
    #[must_use]
    pub fn place(&self) -> Option<&str> {
        let first = self.text.lines().next().unwrap_or_default();
        first.strip_prefix("# ").filter(|path| path.starts_with('/') && !path.contains(' '))
    }
}

/// All blocks, in order.
#[must_use]
pub fn blocks(page: &str) -> Vec<Block> {
    let mut found = Vec::new();
    let mut heading = String::new();
    let mut open: Option<Block> = None;
    for (index, line) in page.lines().enumerate() {
        let fence = line.trim_start().strip_prefix("```");
        match (fence, open.take()) {
            (Some(_), Some(block)) => found.push(block),
            (Some(language), None) => {
                let (heading, language) = (heading.clone(), language.trim().to_owned());
                open = Some(Block { heading, language, line: index + 1, text: String::new() });
            }
            (None, Some(mut block)) => {
                block.text.push_str(line);
                block.text.push('\n');
                open = Some(block);
            }
            (None, None) if line.starts_with('#') => {
                line.trim_start_matches('#').trim().clone_into(&mut heading);
            }
            (None, None) => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_have_their_heading_their_language_and_their_lines() {
        let page =
            "```sh\na\n```\n# One\n```text\n# no heading\n```\n## Two things\nwords\n```\nb\n\nc\n```\n";
        let block = |heading: &str, language: &str, line, text: &str| Block {
            heading: heading.into(),
            language: language.into(),
            line,
            text: text.into(),
        };
        let expected = [
            block("", "sh", 1, "a\n"),
            block("One", "text", 5, "# no heading\n"),
            block("Two things", "", 10, "b\n\nc\n"),
        ];
        assert_eq!(blocks(page), expected);
    }

    #[test]
    fn commands_and_files_with_a_place_are_pasted() {
        let is_pasted = |language: &str, text: &str| {
            Block { language: language.into(), text: text.into(), ..Block::default() }.is_pasted()
        };
        assert!(is_pasted("sh", "ls\n") && is_pasted("console", "$ ls\n"));
        assert!(is_pasted("toml", "# /etc/a.toml\n[a]\n"));
        assert!(!is_pasted("toml", "[a]\n") && !is_pasted("toml", "# / is the root\n"));
        assert!(!is_pasted("text", "ls\n"));
    }
}
