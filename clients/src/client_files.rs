//! The locations of clients' files.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::client::Client;
use crate::document::DocumentForm;

/// Operating systems with different paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Platform {
    /// Linux and similar ones.
    Linux,
    /// macOS.
    Mac,
    /// Windows, seen from WSL.
    Windows,
}

/// The user's base folders of clients' files.
#[derive(Clone, Debug)]
pub struct UserFolders {
    /// `~`.
    pub home: PathBuf,
    /// `$XDG_CONFIG_HOME`, or `~/.config`; on Windows `%APPDATA%`.
    pub config: PathBuf,
    /// `$CODEX_HOME`, or `~/.codex`.
    pub codex: PathBuf,
    /// The system.
    pub platform: Platform,
}

/// When a client reads a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileScope {
    /// Always.
    User,
    /// When started in the folder.
    Project,
}

/// A file that a client reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientFile {
    /// The client.
    pub client: Client,
    /// When it reads it.
    pub scope: FileScope,
    /// The path; the file may not exist.
    pub path: PathBuf,
}

/// The files of all clients: the user's, and those of a project's folder.
#[must_use]
pub fn client_files(user: &UserFolders, project: Option<&Path>) -> Vec<ClientFile> {
    let of_user = Client::ALL.into_iter().flat_map(|client| {
        let paths = user_files(client, user).into_iter();
        paths.map(move |path| ClientFile {
            client,
            scope: FileScope::User,
            path,
        })
    });
    let of_project = project.into_iter().flat_map(|folder| {
        let named = Client::ALL.into_iter().flat_map(|client| {
            let names = project_files(client).iter();
            names.map(move |name| (client, name))
        });
        named.map(|(client, name)| ClientFile {
            client,
            scope: FileScope::Project,
            path: folder.join(name),
        })
    });
    of_user.chain(of_project).collect()
}

fn user_files(client: Client, user: &UserFolders) -> Vec<PathBuf> {
    let UserFolders {
        home,
        config,
        codex,
        platform,
    } = user;
    let programs = match platform {
        Platform::Linux | Platform::Windows => config.clone(),
        Platform::Mac => home.join("Library/Application Support"),
    };
    match client {
        Client::ClaudeDesktop => vec![programs.join("Claude/claude_desktop_config.json")],
        Client::ClaudeCode => vec![home.join(".claude.json")],
        Client::Cursor => vec![home.join(".cursor/mcp.json")],
        Client::VsCode => vec![programs.join("Code/User/mcp.json")],
        Client::Windsurf => vec![home.join(".codeium/windsurf/mcp_config.json")],
        Client::Zed if *platform == Platform::Windows => vec![config.join("Zed/settings.json")],
        Client::Zed => vec![config.join("zed/settings.json")],
        Client::Codex => vec![codex.join("config.toml")],
        Client::Gemini if *platform == Platform::Windows => {
            vec![home.join(".gemini/settings.json")]
        }
        Client::Gemini => vec![
            home.join(".gemini/settings.json"),
            PathBuf::from("/etc/gemini-cli/settings.json"),
        ],
        // It looks there on Windows, too.
        Client::OpenCode if *platform == Platform::Windows => {
            let folder = home.join(".config/opencode");
            ["opencode.json", "opencode.jsonc"]
                .map(|name| folder.join(name))
                .into()
        }
        Client::OpenCode => ["opencode.json", "opencode.jsonc"]
            .map(|name| config.join("opencode").join(name))
            .into(),
        Client::Goose if *platform == Platform::Windows => {
            vec![config.join("Block/goose/config/config.yaml")]
        }
        Client::Goose => vec![config.join("goose/config.yaml")],
        Client::LmStudio => vec![home.join(".lmstudio/mcp.json")],
        Client::Cline => vec![
            home.join(".cline/data/settings/cline_mcp_settings.json"),
            programs.join(
                "Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
            ),
        ],
        Client::Copilot => vec![home.join(".copilot/mcp-config.json")],
        Client::Antigravity => vec![home.join(".gemini/config/mcp_config.json")],
        Client::Roo => {
            vec![programs.join(
                "Code/User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json",
            )]
        }
        Client::Continue => vec![home.join(".continue/config.yaml")],
    }
}

fn project_files(client: Client) -> &'static [&'static str] {
    match client {
        Client::ClaudeCode => &[".mcp.json"],
        Client::Cursor => &[".cursor/mcp.json"],
        Client::VsCode => &[".vscode/mcp.json"],
        Client::Zed => &[".zed/settings.json"],
        Client::Codex => &[".codex/config.toml"],
        Client::Gemini => &[".gemini/settings.json"],
        Client::OpenCode => &["opencode.json", "opencode.jsonc"],
        Client::Roo => &[".roo/mcp.json"],
        Client::Continue => &[".continue/config.yaml"],
        Client::ClaudeDesktop
        | Client::Windsurf
        | Client::Goose
        | Client::LmStudio
        | Client::Cline
        | Client::Copilot
        | Client::Antigravity => &[],
    }
}

/// Files of a project that rarely contain servers: recognized if named, but not searched.
fn rare_project_files(client: Client) -> &'static [&'static str] {
    match client {
        Client::VsCode => &[".vscode/settings.json"],
        Client::ClaudeDesktop
        | Client::ClaudeCode
        | Client::Cursor
        | Client::Windsurf
        | Client::Zed
        | Client::Codex
        | Client::Gemini
        | Client::OpenCode
        | Client::Goose
        | Client::LmStudio
        | Client::Cline
        | Client::Copilot
        | Client::Antigravity
        | Client::Roo
        | Client::Continue => &[],
    }
}

impl Client {
    /// The client of a file by its name.
    #[must_use]
    pub fn from_path(path: &Path) -> Option<Self> {
        if path.ends_with("claude_desktop_config.json") {
            return Some(Self::ClaudeDesktop);
        }
        if path.extension().is_some_and(|end| end == "code-workspace") {
            return Some(Self::VsCode);
        }
        // One file for each server, or another client's file, in this folder of Continue's.
        let yaml = DocumentForm::from_path(path) == DocumentForm::Yaml;
        if yaml
            && path
                .parent()
                .is_some_and(|parent| parent.ends_with(".continue/mcpServers"))
        {
            return Some(Self::Continue);
        }
        let mut known = Self::ALL.into_iter();
        known.find(|client| client.project_file(path).is_some())
    }

    /// The client of a document by its keys.
    #[must_use]
    pub(crate) fn from_document(document: &Value) -> Option<Self> {
        let has = |key: &str| document.get(key).is_some();
        if document.get("mcpServers").is_some_and(Value::is_array) {
            return Some(Self::Continue);
        }
        let known = [
            ("servers", Self::VsCode),
            ("context_servers", Self::Zed),
            ("mcp_servers", Self::Codex),
            ("extensions", Self::Goose),
            ("mcp", Self::OpenCode),
        ];
        let known = known.into_iter().find(|(key, _)| has(key));
        known
            .map(|(_, client)| client)
            .filter(|_| !has("mcpServers"))
    }

    /// The folder of the project that a file belongs to, by its path.
    #[must_use]
    pub fn project_folder(path: &Path) -> Option<PathBuf> {
        let inside = Self::ALL
            .into_iter()
            .find_map(|client| client.project_file(path));
        let depth = match inside {
            Some(inside) => Path::new(inside).components().count(),
            // `.continue/mcpServers/x.yaml`
            None if path.parent()?.ends_with(".continue/mcpServers") => 3,
            None => 1,
        };
        path.ancestors().nth(depth).map(Path::to_owned)
    }

    /// The path of a project's file within its folder, if it is one of the client's.
    #[must_use]
    pub(crate) fn project_file(self, path: &Path) -> Option<&'static str> {
        let all = project_files(self).iter().chain(rare_project_files(self));
        all.copied().find(|name| path.ends_with(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_recognized_by_its_name_in_any_folder() {
        let of = |path: &str| Client::from_path(Path::new(path));
        assert_eq!(of("/x/.vscode/mcp.json"), Some(Client::VsCode));
        assert_eq!(of("/x/.cursor/mcp.json"), Some(Client::Cursor));
        assert_eq!(
            of("/backup/claude_desktop_config.json"),
            Some(Client::ClaudeDesktop)
        );
        assert_eq!(of("/x/.mcp.json"), Some(Client::ClaudeCode));
        assert_eq!(of("/x/.roo/mcp.json"), Some(Client::Roo));
        assert_eq!(of("/x/.gemini/settings.json"), Some(Client::Gemini));
        assert_eq!(of("/x/a.code-workspace"), Some(Client::VsCode));
        assert_eq!(of("/x/.continue/mcpServers/a.yaml"), Some(Client::Continue));
        assert_eq!(of("/x/mcp.json"), None);
    }

    #[test]
    fn a_file_belongs_to_the_project_above_it() {
        let of = |path: &str| Client::project_folder(Path::new(path));
        for path in [
            "/x/.vscode/mcp.json",
            "/x/.roo/mcp.json",
            "/x/.gemini/settings.json",
            "/x/.mcp.json",
            "/x/.continue/mcpServers/a.yaml",
            "/x/mcp.json",
            "/x/a.code-workspace",
        ] {
            assert_eq!(of(path), Some(PathBuf::from("/x")), "{path}");
        }
    }

    #[test]
    fn relocated_folders_are_used() {
        let user = UserFolders {
            home: "/home/me".into(),
            config: "/cfg".into(),
            codex: "/codex".into(),
            platform: Platform::Linux,
        };
        let paths: Vec<_> = client_files(&user, None)
            .into_iter()
            .map(|file| file.path)
            .collect();
        for path in [
            "/cfg/Claude/claude_desktop_config.json",
            "/codex/config.toml",
            "/home/me/.claude.json",
        ] {
            assert!(paths.contains(&PathBuf::from(path)), "{path}");
        }
        let mac = UserFolders {
            platform: Platform::Mac,
            ..user
        };
        let desktop = "/home/me/Library/Application Support/Claude/claude_desktop_config.json";
        assert!(
            client_files(&mac, None)
                .iter()
                .any(|file| file.path == Path::new(desktop))
        );
    }
}
