//! Fills a template with the node's pod ranges. Owns the language. Pure: `pod_ranges.rs` handles the files.
//!
//! No maintained crate speaks the language of Go's templates. This is the subset used by CNI templates of
//! other runtimes:
//!
//! ```text
//!   {{.PodCIDR}}                                  a value: `.Name`, `.`, `$variable`
//!   {{if .Routes}} … {{else}} … {{end}}           empty text, an empty list and 0 are false
//!   {{range .PodCIDRRanges}} … {{.}} … {{end}}
//!   {{range $i, $r := .Routes}} … {{end}}         also with one variable, and with an {{else}}
//!   {{- … -}}                                     takes the white space beside it away
//!   {{/* … */}}                                   nothing
//! ```

use std::collections::HashMap;

/// Nesting of blocks: real templates have two levels.
const DEPTH_MAX: usize = 16;

/// Bytes of the longest result. Real results are a few KiB, and nested blocks multiply.
const RESULT_BYTES_MAX: usize = 1 << 20;

/// A value of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Text(String),
    List(Vec<String>),
    Number(usize),
}

impl Value {
    fn is_true(&self) -> bool {
        match self {
            Value::Text(text) => !text.is_empty(),
            Value::List(list) => !list.is_empty(),
            Value::Number(number) => *number > 0,
        }
    }
}

/// An error in a template, with its line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TemplateError {
    pub(crate) line: usize,
    pub(crate) reason: String,
}

/// Fills the template. `.Name` returns the field of this name.
pub(crate) fn fill(template: &str, fields: &HashMap<&str, Value>) -> Result<String, TemplateError> {
    let mut parser = Parser { tokens: split(template)?.into_iter().peekable(), depth: 0 };
    let block = parser.block()?;
    if let Some(Closing { line, action }) = block.closing {
        return Err(wrong(line, format!("{{{{{action}}}}} without a beginning")));
    }
    let mut scope = Scope { fields, dot: Vec::new(), variables: Vec::new(), result: String::new() };
    scope.show_all(&block.nodes)?;
    Ok(scope.result)
}

fn wrong(line: usize, reason: impl Into<String>) -> TemplateError {
    TemplateError { line, reason: reason.into() }
}

enum Token {
    Text(String),
    Action(usize, String),
}

fn split(template: &str) -> Result<Vec<Token>, TemplateError> {
    let mut tokens = Vec::new();
    let (mut rest, mut line, mut trim) = (template, 1, false);
    loop {
        let (text, after) = match rest.split_once("{{") {
            Some((text, after)) => (text, Some(after)),
            None => (rest, None),
        };
        let at = line + text.matches('\n').count();
        let trim_end = after.is_some_and(|after| after.starts_with("- "));
        let kept = if trim { text.trim_start() } else { text };
        let kept = if trim_end { kept.trim_end() } else { kept };
        if !kept.is_empty() {
            tokens.push(Token::Text(kept.to_owned()));
        }
        let Some(after) = after else { return Ok(tokens) };
        let (action, following) = after.split_once("}}").ok_or_else(|| wrong(at, "{{ without its }}"))?;
        line = at + action.matches('\n').count();
        trim = action.ends_with(" -");
        let action = action.strip_prefix("- ").unwrap_or(action);
        let action = action.strip_suffix(" -").unwrap_or(action);
        let action = action.trim();
        if !(action.starts_with("/*") && action.ends_with("*/")) {
            tokens.push(Token::Action(at, action.to_owned()));
        }
        rest = following;
    }
}

enum Node {
    Text(String),
    Show(usize, Expression),
    If { line: usize, condition: Expression, then: Vec<Node>, otherwise: Vec<Node> },
    Range { line: usize, names: Vec<String>, list: Expression, body: Vec<Node>, otherwise: Vec<Node> },
}

enum Expression {
    Dot,
    Field(String),
    Variable(String),
}

/// Nodes up to the template's end, or to their closing action.
struct Block {
    nodes: Vec<Node>,
    closing: Option<Closing>,
}

/// An `else` or `end`.
struct Closing {
    line: usize,
    action: String,
}

struct Parser {
    tokens: std::iter::Peekable<std::vec::IntoIter<Token>>,
    depth: usize,
}

impl Parser {
    fn block(&mut self) -> Result<Block, TemplateError> {
        let mut nodes = Vec::new();
        while let Some(token) = self.tokens.next() {
            let (line, action) = match token {
                Token::Text(text) => {
                    nodes.push(Node::Text(text));
                    continue;
                }
                Token::Action(line, action) => (line, action),
            };
            let (word, rest) = action.split_once(char::is_whitespace).unwrap_or((&action, ""));
            nodes.push(match word {
                "end" | "else" if rest.is_empty() => {
                    return Ok(Block { nodes, closing: Some(Closing { line, action }) });
                }
                "if" => {
                    let condition = expression(line, rest)?;
                    let (then, otherwise) = self.branches(line)?;
                    Node::If { line, condition, then, otherwise }
                }
                "range" => {
                    let (names, list) = range(line, rest)?;
                    let (body, otherwise) = self.branches(line)?;
                    Node::Range { line, names, list, body, otherwise }
                }
                _ => Node::Show(line, expression(line, &action)?),
            });
        }
        Ok(Block { nodes, closing: None })
    }

    /// Parses a block's nodes up to its end, and those after an `else`.
    fn branches(&mut self, line: usize) -> Result<(Vec<Node>, Vec<Node>), TemplateError> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(wrong(line, format!("more than {DEPTH_MAX} blocks within each other")));
        }
        let unended = || wrong(line, "a block without its {{end}}");
        let first = self.block()?;
        let second = match first.closing.ok_or_else(unended)?.action.as_str() {
            "end" => Vec::new(),
            _ => match self.block()? {
                Block { nodes, closing: Some(closing) } if closing.action == "end" => nodes,
                _ => return Err(unended()),
            },
        };
        self.depth -= 1;
        Ok((first.nodes, second))
    }
}

/// `.List`, or `$item := .List`, or `$index, $item := .List`.
fn range(line: usize, text: &str) -> Result<(Vec<String>, Expression), TemplateError> {
    let Some((names, list)) = text.split_once(":=") else {
        return Ok((Vec::new(), expression(line, text)?));
    };
    let names: Vec<String> = names.split(',').map(|name| name.trim().to_owned()).collect();
    if names.len() > 2 || names.iter().any(|name| !is_variable(name)) {
        return Err(wrong(line, format!("{text:?} is no range")));
    }
    Ok((names, expression(line, list)?))
}

fn expression(line: usize, text: &str) -> Result<Expression, TemplateError> {
    let text = text.trim();
    let is_name = |name: &str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if text == "." {
        Ok(Expression::Dot)
    } else if let Some(field) = text.strip_prefix("$.").or_else(|| text.strip_prefix('.'))
        && is_name(field)
    {
        Ok(Expression::Field(field.to_owned()))
    } else if is_variable(text) {
        Ok(Expression::Variable(text.to_owned()))
    } else {
        Err(wrong(line, format!("{text:?} is not understood")))
    }
}

fn is_variable(text: &str) -> bool {
    text.strip_prefix('$').is_some_and(|name| {
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    })
}

struct Scope<'a> {
    fields: &'a HashMap<&'a str, Value>,
    /// The items of the enclosing ranges, innermost last.
    dot: Vec<Value>,
    /// The variables of those ranges, innermost last.
    variables: Vec<(String, Value)>,
    result: String,
}

impl Scope<'_> {
    fn show_all(&mut self, nodes: &[Node]) -> Result<(), TemplateError> {
        nodes.iter().try_for_each(|node| self.show(node))
    }

    fn show(&mut self, node: &Node) -> Result<(), TemplateError> {
        match node {
            Node::Text(text) => self.result.push_str(text),
            Node::Show(line, expression) => match self.value(*line, expression)? {
                Value::Text(text) => self.result.push_str(&text),
                Value::Number(number) => self.result.push_str(&number.to_string()),
                Value::List(_) => return Err(wrong(*line, "a list is shown by {{range}}")),
            },
            Node::If { line, condition, then, otherwise } => {
                let branch = if self.value(*line, condition)?.is_true() { then } else { otherwise };
                self.show_all(branch)?;
            }
            Node::Range { line, names, list, body, otherwise } => {
                let Value::List(items) = self.value(*line, list)? else {
                    return Err(wrong(*line, "{{range}} goes over a list"));
                };
                if items.is_empty() {
                    self.show_all(otherwise)?;
                }
                for (index, item) in items.into_iter().enumerate() {
                    self.enter(names, index, &item);
                    self.show_all(body)?;
                    self.dot.pop();
                    self.variables.truncate(self.variables.len() - names.len());
                    if self.result.len() > RESULT_BYTES_MAX {
                        return Err(wrong(*line, "the result is larger than 1 MiB"));
                    }
                }
            }
        }
        Ok(())
    }

    /// Enters one iteration of a range. The last name is the item's; a name before it is the index's.
    fn enter(&mut self, names: &[String], index: usize, item: &str) {
        let item = Value::Text(item.to_owned());
        for (place, name) in names.iter().rev().enumerate() {
            let value = if place == 0 { item.clone() } else { Value::Number(index) };
            self.variables.push((name.clone(), value));
        }
        self.dot.push(item);
    }

    fn value(&self, line: usize, expression: &Expression) -> Result<Value, TemplateError> {
        let found = match expression {
            Expression::Dot => self.dot.last(),
            Expression::Field(name) => self.fields.get(name.as_str()),
            Expression::Variable(name) => {
                self.variables.iter().rev().find(|(known, _)| known == name).map(|(_, value)| value)
            }
        };
        found.cloned().ok_or_else(|| {
            let name = match expression {
                Expression::Dot => ".".to_owned(),
                Expression::Field(name) => format!(".{name}"),
                Expression::Variable(name) => name.clone(),
            };
            wrong(line, format!("{name} has no value here"))
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn filled(template: &str) -> Result<String, TemplateError> {
        let list = |items: &[&str]| Value::List(items.iter().map(ToString::to_string).collect());
        let fields = HashMap::from([
            ("PodCIDR", Value::Text("10.1.0.0/24".into())),
            ("PodCIDRRanges", list(&["10.1.0.0/24", "fd00::/64"])),
            ("Routes", list(&["0.0.0.0/0", "::/0"])),
            ("None", list(&[])),
        ]);
        fill(template, &fields)
    }

    #[test]
    fn values_and_ranges_are_filled_in() {
        assert_eq!(filled("a {{.PodCIDR}} b{{ .PodCIDR }}").unwrap(), "a 10.1.0.0/24 b10.1.0.0/24");
        let ranges =
            r#"[{{range $i, $range := .PodCIDRRanges}}{{if $i}}, {{end}}[{"subnet": "{{$range}}"}]{{end}}]"#;
        assert_eq!(filled(ranges).unwrap(), r#"[[{"subnet": "10.1.0.0/24"}], [{"subnet": "fd00::/64"}]]"#);
        assert_eq!(filled("{{range .Routes}}<{{.}}>{{end}}").unwrap(), "<0.0.0.0/0><::/0>");
        assert_eq!(
            filled("{{range $r := .Routes}}{{$r}} {{$.PodCIDR}};{{end}}").unwrap().matches(';').count(),
            2
        );
    }

    #[test]
    fn conditions_choose_and_comments_and_white_space_go() {
        assert_eq!(filled("{{if .None}}a{{else}}b{{end}}").unwrap(), "b");
        assert_eq!(filled("{{if .Routes}}a{{else}}b{{end}}").unwrap(), "a");
        assert_eq!(filled("{{range .None}}a{{else}}b{{end}}").unwrap(), "b");
        assert_eq!(filled("a  {{- /* not this */ -}}\n b").unwrap(), "ab");
    }

    #[test]
    fn an_error_names_its_line() {
        for (template, line, reason) in [
            ("a\n{{.Nothing}}", 2, ".Nothing has no value"),
            ("{{range .Routes}}\n\nx", 1, "without its {{end}}"),
            ("\n\n{{end}}", 3, "without a beginning"),
            ("{{if .Routes", 1, "without its }}"),
            ("{{printf .PodCIDR}}", 1, "is not understood"),
            ("{{.Routes}}", 1, "a list is shown"),
            ("{{range .PodCIDR}}{{end}}", 1, "goes over a list"),
            ("{{$x}}", 1, "$x has no value"),
            ("{{- -}}", 1, "is not understood"),
            ("{{range $a, $b, $c := .Routes}}{{end}}", 1, "is no range"),
        ] {
            let wrong = filled(template).unwrap_err();
            assert_eq!(wrong.line, line, "{template}: {}", wrong.reason);
            assert!(wrong.reason.contains(reason), "{template}: {}", wrong.reason);
        }
        assert!(filled(&"{{if .Routes}}".repeat(1000)).unwrap_err().reason.contains("within each other"));
    }

    #[test]
    fn a_result_that_grows_without_bound_is_refused() {
        let nested =
            format!("{}{}{}", "{{range .Routes}}".repeat(16), "x".repeat(1000), "{{end}}".repeat(16));
        assert!(filled(&nested).unwrap_err().reason.contains("larger than"));
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(parts in prop::collection::vec(
            prop_oneof![
                Just("{{".to_owned()), Just("}}".to_owned()), Just("{{- ".to_owned()), Just(" -}}".to_owned()),
                Just("-".to_owned()), Just("range ".to_owned()), Just("if ".to_owned()), Just("{{end}}".to_owned()),
                Just("{{else}}".to_owned()), Just(".Routes".to_owned()), Just("$i, $r := ".to_owned()), ".{0,5}",
            ], 0..20,
        )) {
            let _ = filled(&parts.concat());
        }
    }
}
