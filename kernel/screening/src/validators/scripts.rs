//! Detects `sed` and `awk` programs within a command that only read.

/// True if no command of a `sed` script writes, reads other files or runs anything. False for a script that
/// cannot be parsed completely.
pub(super) fn is_reading_sed(script: &str) -> bool {
    let chars: Vec<char> = script.chars().collect();
    let mut reader = SedReader {
        chars: &chars,
        position: 0,
    };
    while reader.position < chars.len() {
        if reader.parse_command().is_none() {
            return false;
        }
    }
    true
}

struct SedReader<'a> {
    chars: &'a [char],
    position: usize,
}

impl SedReader<'_> {
    fn peek(&self) -> Option<char> {
        self.chars.get(self.position).copied()
    }

    fn skip(&mut self, while_: impl Fn(char) -> bool) {
        while self.peek().is_some_and(&while_) {
            self.position += 1;
        }
    }

    fn parse_command(&mut self) -> Option<()> {
        self.skip(|c| c.is_whitespace() || matches!(c, ';' | '{' | '}'));
        self.parse_address()?;
        if self.peek() == Some(',') {
            self.position += 1;
            self.skip(|c| matches!(c, ' ' | '+' | '~'));
            self.parse_address()?;
        }
        self.skip(|c| matches!(c, ' ' | '!'));
        let Some(command) = self.peek() else {
            return Some(());
        };
        self.position += 1;
        match command {
            '{' | '}' => return Some(()),
            '=' | 'd' | 'D' | 'g' | 'G' | 'h' | 'H' | 'n' | 'N' | 'p' | 'P' | 'x' | 'z' | 'l'
            | 'q' | 'Q' => self.skip(|c| c.is_ascii_digit() || c == ' '),
            's' => {
                let delimiter = self.parse_delimiter()?;
                self.skip_past(delimiter)?;
                self.skip_past(delimiter)?;
                self.skip(|c| matches!(c, 'g' | 'p' | 'i' | 'I' | 'm' | 'M') || c.is_ascii_digit());
            }
            'y' => {
                let delimiter = self.parse_delimiter()?;
                self.skip_past(delimiter)?;
                self.skip_past(delimiter)?;
            }
            // Labels end at the first character that ends them in any version.
            'b' | 't' | 'T' | ':' => {
                self.skip(|c| c == ' ');
                self.skip(|c| c.is_alphanumeric() || c == '_');
            }
            // A text continues to the end of its line, and beyond after a backslash.
            'a' | 'i' | 'c' => {
                let start = self.position;
                self.skip(|c| c != '\n');
                if self.chars[start..self.position].last() == Some(&'\\') {
                    return None;
                }
            }
            _ => return None,
        }
        self.skip(|c| c == ' ');
        matches!(self.peek(), None | Some(';' | '\n' | '}' | '{')).then_some(())
    }

    fn parse_address(&mut self) -> Option<()> {
        match self.peek() {
            Some('/') => {
                self.position += 1;
                self.skip_past('/')?;
            }
            Some('\\') => {
                self.position += 1;
                let delimiter = self.parse_delimiter()?;
                self.skip_past(delimiter)?;
            }
            _ => self.skip(|c| c.is_ascii_digit() || matches!(c, '$' | '~')),
        }
        self.skip(|c| matches!(c, 'I' | 'M' | ' '));
        Some(())
    }

    fn parse_delimiter(&mut self) -> Option<char> {
        let delimiter = self.peek().filter(|c| !matches!(c, '\n' | '\\'))?;
        self.position += 1;
        Some(delimiter)
    }

    /// Skips past the next unescaped delimiter. Versions differ in whether one within brackets counts; so
    /// none may be in them.
    fn skip_past(&mut self, delimiter: char) -> Option<()> {
        let (mut bracket, mut class) = (false, false);
        loop {
            let c = self.peek()?;
            self.position += 1;
            match c {
                '\\' => self.position += 1,
                '[' if bracket => class = matches!(self.peek(), Some(':' | '.' | '=')),
                '[' => {
                    bracket = true;
                    self.position += usize::from(self.peek() == Some('^'));
                    self.position += usize::from(self.peek() == Some(']'));
                }
                ']' if class => class = false,
                ']' => bracket = false,
                c if c == delimiter && bracket => return None,
                c if c == delimiter => return Some(()),
                _ => {}
            }
        }
    }
}

/// True if an `awk` program neither writes files, reads others nor runs anything.
pub(super) fn is_reading_awk(program: &str) -> bool {
    if ["system", "getline", "@", "fflush", "close", "ARGV"]
        .iter()
        .any(|word| program.contains(word))
    {
        return false;
    }
    let code = strip_awk_literals(program);
    let mut before = ' ';
    let mut printing = false;
    let mut depth = 0_u32;
    let mut word = String::new();
    let chars: Vec<char> = code.chars().collect();
    for (at, c) in chars.iter().copied().enumerate() {
        let after = chars.get(at + 1).copied().unwrap_or(' ');
        match c {
            c if c.is_alphanumeric() || c == '_' => word.push(c),
            _ => {
                printing |= word == "print" || word == "printf";
                word.clear();
            }
        }
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        match c {
            ';' | '\n' | '{' | '}' => printing = false,
            '|' if before != '|' && after != '|' => return false,
            '>' if printing => return false,
            _ => {}
        }
        before = c;
    }
    depth == 0
}

/// The program without the contents of its strings and regular expressions. A slash begins one only if no
/// value precedes it.
fn strip_awk_literals(program: &str) -> String {
    let mut out = String::new();
    let mut chars = program.chars();
    while let Some(c) = chars.next() {
        let last = out.trim_end_matches([' ', '\t']).chars().last();
        let opens = last.is_none_or(|l| "(,!~&|{;}\n".contains(l));
        if c == '"' || c == '/' && opens {
            while let Some(inner) = chars.next() {
                match inner {
                    '\\' => drop(chars.next()),
                    end if end == c => break,
                    _ => {}
                }
            }
            // A string is a value; no regular expression follows it.
            out.push('0');
        } else if c == '#' {
            for inner in chars.by_ref() {
                if inner == '\n' {
                    out.push('\n');
                    break;
                }
            }
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// MGP-059: scripts within commands are parsed.
    #[test]
    fn writing_scripts_are_distinguished_from_reading_ones() {
        for script in [
            "1,20p",
            "$d",
            "s/a/b/g",
            "/x/,/y/{p;d}",
            "s|a|b|2p",
            "/a\\/b/!d",
            "y/abc/xyz/",
            "2q",
            ":a;N;$!ba;s/\\n/ /g",
            "1~2p",
            "/x/I,+3p",
            "a more text w e",
            "10,$!d;=",
        ] {
            assert!(is_reading_sed(script), "{script}");
        }
        for script in [
            "w out",
            "1w out",
            "s/a/b/w out",
            "s/a/b/e",
            "1e id",
            "e",
            "r /etc/passwd",
            "R x",
            "$!{w out\n}",
            "s/x/id/ge",
            "s/a/b/;w x",
            "y/a/b/w x",
            "W x",
            "1!e id",
            "s/[/]/w x/e",
            "a x\\\nw out",
            "s/[]/]/;s|/w f|a|",
            "s/[[:x:]/]/;s|/w f|a|",
            "v 4.2",
            ":a w x",
            "F;e",
        ] {
            assert!(!is_reading_sed(script), "{script}");
        }
        for program in [
            "{print $1}",
            "$3 > 100",
            "NR==1,NR==5{print}",
            "/a|b/",
            "{ if ($1 > 5) print $2 }",
            "BEGIN{FS=\"|\"} $2 ~ /x|y/ || $3 {n++} END{print n}",
            "{s+=$1/2} END{print s}",
        ] {
            assert!(is_reading_awk(program), "{program}");
        }
        for program in [
            "{print > \"out\"}",
            "{print $1 >> \"x\"}",
            "BEGIN{system(\"id\")}",
            "BEGIN{\"id\"|getline}",
            "{print | \"sh\"}",
            "{printf \"x\" | \"sh\"}",
            "@load \"x\"",
            "{print $1 / 2 | \"sh\" / 1}",
            "{x = a / b; print x | \"/bin/sh\"}",
        ] {
            assert!(!is_reading_awk(program), "{program}");
        }
    }

    proptest! {
        #[test]
        fn no_script_panics_the_parsers(script in "\\PC{0,60}|[sy/,;{}wae\\[\\]\\\\ 0-9|>\"]{0,30}") {
            let _ = (is_reading_sed(&script), is_reading_awk(&script));
        }
    }
}
