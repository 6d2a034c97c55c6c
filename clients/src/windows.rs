//! Entries of clients of Windows, for a kernel in WSL on the same machine.

use std::path::{Path, PathBuf};

use crate::client_servers::{ClientConnection, ClientDocument, ClientServer};
use crate::text::ClientText;

/// The ends of the names of programs that Windows adds by itself.
const PROGRAM_ENDS: [&str; 3] = [".exe", ".cmd", ".bat"];
/// The variable that names those which WSL passes to programs of Windows.
const PASSED_VARIABLES: &str = "WSLENV";

/// Where the drives of Windows are in WSL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WindowsDrives {
    /// `/mnt`.
    pub root: PathBuf,
}

impl WindowsDrives {
    /// The path of `C:\Users\ada` here, `/mnt/c/Users/ada`; `None` for a text that has no drive.
    #[must_use]
    pub fn to_linux(&self, text: &str) -> Option<PathBuf> {
        let (drive, rest) = text.split_once(':')?;
        let mut letters = drive.chars();
        let letter = letters.next().filter(char::is_ascii_alphabetic)?;
        if letters.next().is_some() || !rest.starts_with(['\\', '/']) {
            return None;
        }
        let drive = self.root.join(letter.to_ascii_lowercase().to_string());
        let parts = rest.split(['\\', '/']).filter(|part| !part.is_empty());
        Some(parts.fold(drive, |path, part| path.join(part)))
    }

    /// The servers as this system starts them.
    #[must_use]
    pub fn translate(&self, mut document: ClientDocument) -> ClientDocument {
        let servers = document.servers.into_iter();
        document.servers = servers.map(|it| self.translate_server(it)).collect();
        document
    }

    /// Programs that are known by a name are those of this system; a program of Windows that is named by its path runs
    /// there.
    fn translate_server(&self, mut server: ClientServer) -> ClientServer {
        let ClientConnection::Command {
            command,
            args,
            env,
            env_file,
            cwd,
        } = &mut server.connection
        else {
            return server;
        };
        let mut words = vec![std::mem::take(command)];
        words.append(args);
        drop_shell(&mut words);
        let is_foreign = self.translate_program(&mut words[0]);
        if is_foreign {
            // WSL passes no others. It is not a word that another notation could read.
            let names = env.iter().map(|(name, _)| name.as_str());
            let names: Vec<&str> = names.filter(|name| *name != PASSED_VARIABLES).collect();
            let names = names.join(":");
            let own = env.iter_mut().find(|(name, _)| name == PASSED_VARIABLES);
            match own {
                _ if names.is_empty() => {}
                Some((_, passed)) => {
                    let before = passed.as_literal().unwrap_or_default();
                    *passed = ClientText::literal(format!("{before}:{names}"));
                }
                None => env.push((PASSED_VARIABLES.to_owned(), ClientText::literal(names))),
            }
        } else {
            let values = env.iter_mut().map(|(_, value)| value);
            for text in words.iter_mut().skip(1).chain(values) {
                self.translate_path(text);
            }
        }
        for text in env_file.iter_mut().chain(cwd) {
            self.translate_path(text);
        }
        *command = words.remove(0);
        *args = words;
        server
    }

    fn translate_path(&self, text: &mut ClientText) {
        let path = text.as_literal().and_then(|text| self.to_linux(text));
        if let Some(path) = path {
            *text = ClientText::literal(path.to_string_lossy());
        }
    }

    /// True for a program of Windows. Its scripts do not run here: they are known by their name.
    fn translate_program(&self, program: &mut ClientText) -> bool {
        let Some(text) = program.as_literal().map(str::to_owned) else {
            return false;
        };
        let path = self.to_linux(&text);
        let lower = text.to_ascii_lowercase();
        if let Some(path) = path.as_ref().filter(|_| lower.ends_with(".exe")) {
            *program = ClientText::literal(path.to_string_lossy());
            return true;
        }
        let name = text.rsplit(['\\', '/']).next().unwrap_or(&text);
        let is_bare = path.is_some() || name.len() == text.len();
        let end = PROGRAM_ENDS.iter().find(|end| lower.ends_with(**end));
        if let (true, Some(end)) = (is_bare, end) {
            *program = ClientText::literal(&name[..name.len() - end.len()]);
        }
        false
    }
}

/// Removes what only starts another program: `cmd /c npx`, `wsl.exe -d Ubuntu -- npx`.
fn drop_shell(words: &mut Vec<ClientText>) {
    let Some(program) = words.first().and_then(ClientText::as_literal) else {
        return;
    };
    let before = match program_name(program).as_str() {
        "cmd" => {
            let is_switch = |word: &ClientText| {
                let word = word.as_literal().unwrap_or_default();
                word.eq_ignore_ascii_case("/c") || word.eq_ignore_ascii_case("/k")
            };
            words.iter().position(is_switch).map(|place| place + 1)
        }
        "wsl" => {
            let texts = words.iter().map(|it| it.as_literal().unwrap_or("?"));
            inner_of_wsl(&texts.collect::<Vec<_>>())
        }
        _ => None,
    };
    // One word is left at least.
    if let Some(before) = before.filter(|before| *before < words.len()) {
        words.drain(..before);
    }
}

/// The place of the first word that `wsl.exe` runs.
pub(crate) fn inner_of_wsl(words: &[&str]) -> Option<usize> {
    if words.first().map(|word| program_name(word)).as_deref() != Some("wsl") {
        return None;
    }
    let mut place = 1;
    while let Some(word) = words.get(place) {
        match *word {
            "--" | "-e" | "--exec" => return (place + 1 < words.len()).then_some(place + 1),
            "-d" | "--distribution" | "-u" | "--user" | "--cd" | "--shell-type" => place += 2,
            word if word.starts_with('-') => place += 1,
            _ => return Some(place),
        }
    }
    None
}

/// `C:\Windows\System32\CMD.EXE` is `cmd`.
fn program_name(program: &str) -> String {
    let name = program.rsplit(['\\', '/']).next().unwrap_or(program);
    let name = name.to_ascii_lowercase();
    name.strip_suffix(".exe").unwrap_or(&name).to_owned()
}

/// What a client of Windows runs to start a program in this WSL.
#[must_use]
pub fn through_wsl(distribution: &str, program: &Path, args: &[String]) -> (String, Vec<String>) {
    // No shell reads the words.
    let start = ["-d", distribution, "--exec"].map(str::to_owned);
    let program = program.to_string_lossy().into_owned();
    let words = start
        .into_iter()
        .chain([program])
        .chain(args.iter().cloned());
    ("wsl.exe".to_owned(), words.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Client;
    use crate::tables::read_document;
    use serde_json::json;

    fn drives() -> WindowsDrives {
        WindowsDrives {
            root: "/mnt".into(),
        }
    }

    /// The words and variables of an entry, translated.
    fn translated(entry: serde_json::Value) -> (Vec<String>, Vec<(String, String)>) {
        let document = json!({"mcpServers": {"x": entry}});
        let found = read_document(&document, Some(Client::ClaudeDesktop));
        let server = drives().translate(found).servers.remove(0);
        let ClientConnection::Command {
            command, args, env, ..
        } = server.connection
        else {
            panic!("it starts a program");
        };
        let text = |text: &ClientText| text.as_literal().unwrap().to_owned();
        let words = std::iter::once(&command).chain(&args).map(text).collect();
        (
            words,
            env.iter()
                .map(|(name, value)| (name.clone(), text(value)))
                .collect(),
        )
    }

    /// PRJ-030: drive letters are paths below the drives of WSL, in both spellings.
    #[test]
    fn drive_letters_are_paths_of_wsl() {
        let drives = drives();
        let path = |text: &str| drives.to_linux(text).map(|path| path.display().to_string());
        assert_eq!(
            path(r"C:\Users\Ada\my notes").as_deref(),
            Some("/mnt/c/Users/Ada/my notes")
        );
        assert_eq!(path("d:/data/").as_deref(), Some("/mnt/d/data"));
        for other in [
            "C:",
            "C:notes",
            "https://a/b",
            "ab:/c",
            "/home/ada",
            "key:value",
            "",
        ] {
            assert_eq!(path(other), None, "{other}");
        }
    }

    /// PRJ-030: launchers are those of this system, shells are left out, and paths are translated.
    #[test]
    fn programs_known_by_name_are_those_of_this_system() {
        let notes = r"C:\Users\Ada\notes";
        let expected = ["npx", "-y", "files", "/mnt/c/Users/Ada/notes"];
        for (command, before) in [
            ("npx", &[][..]),
            ("npx.cmd", &[]),
            (r"C:\Program Files\nodejs\npx.cmd", &[]),
            ("cmd", &["/c", "npx"]),
            (
                r"C:\Windows\System32\cmd.exe",
                &["/d", "/s", "/C", "npx.cmd"],
            ),
            ("wsl.exe", &["-d", "Ubuntu", "--", "npx"]),
            ("wsl", &["npx"]),
        ] {
            let args = [before, &["-y", "files", notes]].concat();
            let (words, _) = translated(json!({"command": command, "args": args}));
            assert_eq!(words, expected, "{command}");
        }
        let (_, env) =
            translated(json!({"command": "uvx.exe", "args": [], "env": {"DIR": notes, "A": "b"}}));
        assert_eq!(
            env,
            [
                ("DIR".into(), "/mnt/c/Users/Ada/notes".into()),
                ("A".into(), "b".into())
            ]
        );
    }

    /// PRJ-030: a program of Windows runs there, with its own paths, and gets its variables.
    #[test]
    fn programs_of_windows_run_there() {
        let entry = json!({"command": r"C:\Tools\server.exe", "args": [r"C:\data"], "env": {"KEY": "k", "B": "c"}});
        let (words, env) = translated(entry);
        assert_eq!(words, ["/mnt/c/Tools/server.exe", r"C:\data"]);
        assert_eq!(env.last(), Some(&("WSLENV".into(), "KEY:B".into())));
        let entry = json!({"command": r"C:\a.exe", "env": {"WSLENV": "HOME/p", "KEY": "k"}});
        let (_, env) = translated(entry);
        assert_eq!(env[0], ("WSLENV".into(), "HOME/p:KEY".into()));
        assert_eq!(env.len(), 2);
    }

    #[test]
    fn a_shell_alone_stays() {
        assert_eq!(
            translated(json!({"command": "cmd", "args": ["/c"]})).0,
            ["cmd", "/c"]
        );
        assert_eq!(translated(json!({"command": "./a.exe"})).0, ["./a.exe"]);
    }
}
