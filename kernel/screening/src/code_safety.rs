//! Checks code before it leaves the kernel (MGP §7): a parser reads Python and JavaScript, and block and
//! allow lists decide. The analysis resolves imports to the members that the code names, and does not
//! follow values.
//!
//! Each level is a lint: it reports blocked imports, patterns and their aliases to an honest author. From
//! [`Level::Strict`] on only listed modules may be imported, the size is limited, and usual ways around the
//! lists are rejected where they are written out. A malicious author can evade it: the sandbox is the
//! boundary.

mod javascript;
mod lists;
mod path;
mod policy;
mod python;
mod rejection;
mod rules;
mod scan;
mod syntax_tree;

pub use policy::{ALLOWED_IMPORTS, CodePolicy, Declaration, Floor, Level};
pub(crate) use rejection::CodeFinding;
pub use rejection::{CodeRule, Rejection};

use rejection::Findings;
use rules::{LanguageRules, strip_whitespace};
use scan::{Scan, line_and_column};
use syntax_tree::{ParseError, Roles, parse, walk};
use tree_sitter::Tree;

/// The most bytes of code, whatever a policy allows.
pub const MAX_CODE_BYTES: usize = 256 * 1024;

/// A language with a parser.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    /// Python 3.
    Python,
    /// ECMAScript, as module or script.
    JavaScript,
}

impl Language {
    /// Parses one of its usual names, in any case.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        match name.trim().to_ascii_lowercase().as_str() {
            "python" | "python3" | "py" => Some(Self::Python),
            "javascript" | "js" | "ecmascript" | "node" | "nodejs" | "node.js" => {
                Some(Self::JavaScript)
            }
            _ => None,
        }
    }
}

/// Checks whether this code may be sent to its server.
///
/// # Errors
/// All violations at once. Above [`Level::Unrestricted`] code that cannot be parsed (unknown language,
/// syntax error, too large or too complex) is rejected.
pub fn check(policy: &CodePolicy, code: &str) -> Result<(), Box<Rejection>> {
    if policy.level == Level::Unrestricted {
        return Ok(());
    }
    let mut findings = Findings::default();
    if let Some(limit) = policy
        .max_code_size_bytes
        .filter(|&limit| code.len() > limit)
    {
        let construct = format!("{} bytes", code.len());
        let hint = format!("at most {limit} bytes; split the work into smaller pieces");
        findings.add(whole_code_finding(CodeRule::TooLarge, construct, hint));
    }
    let Some(language) = policy.parser() else {
        let hint = "this code cannot be judged; use python or javascript".to_owned();
        findings.add(whole_code_finding(
            CodeRule::UnknownLanguage,
            policy.language.clone(),
            hint,
        ));
        return findings.into_verdict(policy);
    };
    if code.len() > MAX_CODE_BYTES {
        let hint = format!("no code of more than {MAX_CODE_BYTES} bytes is read");
        findings.add(whole_code_finding(
            CodeRule::TooComplex,
            format!("{} bytes", code.len()),
            hint,
        ));
        return findings.into_verdict(policy);
    }
    let code = normalize_line_ends(code);
    report_hidden_text(language, &code, &mut findings);
    match parse(language, &code) {
        Ok(tree) => check_tree(policy, language, &code, &tree, &mut findings),
        Err(ParseError::TooComplex) => findings.add(too_complex_finding()),
        Err(ParseError::Syntax(at)) => {
            let (line, column) = line_and_column(&code, at);
            let construct = code[at..].lines().next().unwrap_or_default().to_owned();
            let hint = "code that cannot be read is not run; mend it, or write it in plainer words"
                .to_owned();
            findings.add(CodeFinding {
                rule: CodeRule::Syntax,
                construct,
                line,
                column,
                hint,
            });
        }
    }
    findings.into_verdict(policy)
}

fn whole_code_finding(rule: CodeRule, construct: String, hint: String) -> CodeFinding {
    CodeFinding {
        rule,
        construct,
        line: 1,
        column: 1,
        hint,
    }
}

fn too_complex_finding() -> CodeFinding {
    let hint = "split it into smaller pieces that are nested less".to_owned();
    whole_code_finding(CodeRule::TooComplex, "the code".to_owned(), hint)
}

/// Replaces lone carriage returns by line feeds. Both languages end a line at them, but not both parsers,
/// so code after one would be hidden in a comment. Positions do not change.
fn normalize_line_ends(code: &str) -> String {
    let mut out = String::with_capacity(code.len());
    let mut rest = code.chars().peekable();
    while let Some(c) = rest.next() {
        out.push(if c == '\r' && rest.peek() != Some(&'\n') {
            '\n'
        } else {
            c
        });
    }
    out
}

/// Reports text that a reader or the language reads differently from the parser.
fn report_hidden_text(language: Language, code: &str, findings: &mut Findings) {
    // Two more characters end a line in JavaScript, but not everywhere for its parser.
    let ends_line = |c| language == Language::JavaScript && matches!(c, '\u{2028}' | '\u{2029}');
    let odd = |c: char| {
        ends_line(c) || matches!(c, '\0' | '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
    };
    for (at, c) in code.char_indices().filter(|(_, c)| odd(*c)) {
        let (line, column) = line_and_column(code, at);
        let hint = "write it without control characters; escapes in strings are fine".to_owned();
        let construct = format!("U+{:04X}", u32::from(c));
        findings.add(CodeFinding {
            rule: CodeRule::HiddenText,
            construct,
            line,
            column,
            hint,
        });
        if c == '\0' {
            break;
        }
    }
    if language == Language::Python {
        for (i, line) in code.lines().take(2).enumerate() {
            if let Some(coding) = declared_encoding(line)
                .filter(|c| !["utf-8", "utf8", "ascii", "us-ascii"].contains(&c.as_str()))
            {
                let hint = "code is read as UTF-8".to_owned();
                findings.add(CodeFinding {
                    rule: CodeRule::HiddenText,
                    construct: coding,
                    line: i + 1,
                    column: 1,
                    hint,
                });
            }
        }
    }
}

/// The encoding that a comment in the first two lines declares (PEP 263).
fn declared_encoding(line: &str) -> Option<String> {
    let comment = line
        .trim_start_matches('\u{feff}')
        .trim_start()
        .strip_prefix('#')?;
    let mut rest = comment;
    while let Some(at) = rest.find("coding") {
        rest = &rest[at + "coding".len()..];
        if let Some(name) = rest.strip_prefix([':', '=']) {
            let word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
            let name: String = name.trim_start().chars().take_while(|&c| word(c)).collect();
            return Some(name.to_ascii_lowercase().replace('_', "-"));
        }
    }
    None
}

fn check_tree(
    policy: &CodePolicy,
    language: Language,
    code: &str,
    tree: &Tree,
    findings: &mut Findings,
) {
    let rules = LanguageRules::new(policy, language);
    let (text, places) = strip_comments(code, tree);
    for ((rule, construct, hint), at) in rules.match_text(&text) {
        let (line, column) = line_and_column(code, places.get(at).copied().unwrap_or(0));
        findings.add(CodeFinding {
            rule,
            construct,
            line,
            column,
            hint,
        });
    }
    let query = match language {
        Language::Python => &*python::ROLES,
        Language::JavaScript => &*javascript::ROLES,
    };
    let Some(roles) = Roles::from_query(query, tree, code) else {
        findings.add(too_complex_finding());
        return;
    };
    let mut scan = Scan {
        source: code,
        rules,
        roles,
        findings: std::mem::take(findings),
    };
    scan.report_refused();
    match language {
        Language::Python => python::check(&mut scan, tree),
        Language::JavaScript => javascript::check(&mut scan, tree),
    }
    *findings = scan.findings;
}

/// The code without comments and white space, and the original offset of each byte.
fn strip_comments(code: &str, tree: &Tree) -> (String, Vec<usize>) {
    let mut text = String::with_capacity(code.len());
    let mut places = Vec::with_capacity(code.len());
    let mut from = 0;
    let mut add = |from: usize, to: usize| {
        for (at, c) in code[from..to.max(from)]
            .char_indices()
            .filter(|(_, c)| !c.is_whitespace())
        {
            text.push(c);
            places.extend(std::iter::repeat_n(from + at, c.len_utf8()));
        }
    };
    walk(tree.root_node(), |node, _| {
        if node.kind() == "comment" {
            add(from, node.start_byte());
            from = node.end_byte();
        }
        true
    });
    add(from, code.len());
    debug_assert_eq!(text.len(), strip_whitespace(&text).len());
    (text, places)
}

#[cfg(test)]
mod tests;
