//! The known clients.

use std::fmt;

/// A program that starts MCP servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Client {
    /// Anthropic's desktop program.
    ClaudeDesktop,
    /// Anthropic's program for terminals.
    ClaudeCode,
    /// Cursor.
    Cursor,
    /// Visual Studio Code.
    VsCode,
    /// Windsurf.
    Windsurf,
    /// Zed.
    Zed,
    /// OpenAI's Codex.
    Codex,
    /// Google's Gemini CLI.
    Gemini,
    /// opencode.
    OpenCode,
    /// Goose.
    Goose,
    /// LM Studio.
    LmStudio,
    /// Cline.
    Cline,
    /// GitHub's Copilot CLI.
    Copilot,
    /// Google's Antigravity.
    Antigravity,
    /// Roo Code.
    Roo,
    /// Continue.
    Continue,
}

/// An unknown client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.render())]
pub struct UnknownClient {
    /// The word.
    pub(crate) word: String,
    /// The probable client.
    pub(crate) nearest: Option<&'static str>,
}

impl UnknownClient {
    fn render(&self) -> String {
        let word = &self.word;
        if let Some(nearest) = self.nearest {
            return format!("no client is called {word:?}; did you mean {nearest}?");
        }
        let words: Vec<_> = Client::ALL.iter().map(|client| client.cli_name()).collect();
        format!(
            "no client is called {word:?}; known are {}",
            words.join(", ")
        )
    }
}

impl Client {
    /// All clients, the most used first.
    pub const ALL: [Self; 16] = [
        Self::ClaudeDesktop,
        Self::ClaudeCode,
        Self::Cursor,
        Self::VsCode,
        Self::Windsurf,
        Self::Zed,
        Self::Codex,
        Self::Gemini,
        Self::OpenCode,
        Self::Goose,
        Self::LmStudio,
        Self::Cline,
        Self::Copilot,
        Self::Antigravity,
        Self::Roo,
        Self::Continue,
    ];

    /// Its name on the command line.
    #[must_use]
    pub fn cli_name(self) -> &'static str {
        match self {
            Self::ClaudeDesktop => "claude-desktop",
            Self::ClaudeCode => "claude-code",
            Self::Cursor => "cursor",
            Self::VsCode => "vscode",
            Self::Windsurf => "windsurf",
            Self::Zed => "zed",
            Self::Codex => "codex",
            Self::Gemini => "gemini",
            Self::OpenCode => "opencode",
            Self::Goose => "goose",
            Self::LmStudio => "lmstudio",
            Self::Cline => "cline",
            Self::Copilot => "copilot",
            Self::Antigravity => "antigravity",
            Self::Roo => "roo",
            Self::Continue => "continue",
        }
    }

    /// Its display name.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::ClaudeDesktop => "Claude Desktop",
            Self::ClaudeCode => "Claude Code",
            Self::Cursor => "Cursor",
            Self::VsCode => "VS Code",
            Self::Windsurf => "Windsurf",
            Self::Zed => "Zed",
            Self::Codex => "Codex",
            Self::Gemini => "Gemini CLI",
            Self::OpenCode => "opencode",
            Self::Goose => "Goose",
            Self::LmStudio => "LM Studio",
            Self::Cline => "Cline",
            Self::Copilot => "Copilot CLI",
            Self::Antigravity => "Antigravity",
            Self::Roo => "Roo Code",
            Self::Continue => "Continue",
        }
    }

    /// The clients of a word: `claude` means both of Anthropic's.
    ///
    /// # Errors
    /// [`UnknownClient`], with a suggestion.
    pub fn parse(word: &str) -> Result<Vec<Self>, UnknownClient> {
        let small = word.to_lowercase().replace([' ', '_'], "-");
        let found = match small.as_str() {
            "claude" => vec![Self::ClaudeDesktop, Self::ClaudeCode],
            "code" | "vs-code" | "visual-studio-code" => vec![Self::VsCode],
            "gemini-cli" => vec![Self::Gemini],
            "copilot-cli" => vec![Self::Copilot],
            "lm-studio" => vec![Self::LmStudio],
            "codex-cli" => vec![Self::Codex],
            "roo-code" | "roo-cline" => vec![Self::Roo],
            small => {
                let all = Self::ALL.into_iter();
                all.filter(|client| client.cli_name() == small).collect()
            }
        };
        if !found.is_empty() {
            return Ok(found);
        }
        let slips = |client: &Self| {
            (
                strsim::osa_distance(&small, client.cli_name()),
                client.cli_name(),
            )
        };
        let nearest = Self::ALL.iter().map(slips).min();
        let nearest = nearest.filter(|(slips, _)| *slips <= 2);
        Err(UnknownClient {
            word: word.to_owned(),
            nearest: nearest.map(|(_, word)| word),
        })
    }
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.title())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_found_in_any_spelling() {
        assert_eq!(Client::parse("VS Code"), Ok(vec![Client::VsCode]));
        assert_eq!(Client::parse("Cursor"), Ok(vec![Client::Cursor]));
        assert_eq!(Client::parse("claude").map(|both| both.len()), Ok(2));
        for client in Client::ALL {
            assert_eq!(Client::parse(client.cli_name()), Ok(vec![client]));
        }
    }

    #[test]
    fn a_misspelled_client_gets_a_suggestion() {
        let told = |word| Client::parse(word).unwrap_err().to_string();
        assert_eq!(
            told("curser"),
            "no client is called \"curser\"; did you mean cursor?"
        );
        assert!(told("emacs").contains("known are claude-desktop, claude-code"));
    }
}
