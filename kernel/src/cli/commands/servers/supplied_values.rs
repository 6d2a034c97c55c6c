//! Values of variables and headers that the user supplies. Possible secrets are never taken from the command line,
//! which every user of the machine can read: typed values and values from files are stored as named secrets, to which
//! the configuration refers.

use std::env;
use std::fs::{self, File};
use std::io::{self, IsTerminal, Read};
use std::path::{Path, PathBuf};

use mgp_clients::{is_random, is_secret, is_secret_name, is_secret_word};
use mgp_engine::env::SECRET_PREFIX;
use mgp_engine::store::secrets::{check_value, is_typed_name};
use mgp_store::secrets::{Namespace, SecretStore};

use crate::cli::args::Add;
use crate::cli::failure::Failure;
use crate::cli::hidden_input::HiddenInput;
use crate::cli::print::print_error;
use crate::config::edit::NewServer;
use crate::trust;

/// Longest file of variables, in bytes: the limit of one secret.
const MAX_ENV_FILE: u64 = 64 << 10;
/// Longest scheme before a reference in a header: `Bearer`, `Basic`, `ApiKey`.
const MAX_SCHEME: usize = 10;

/// The supplied values, and the secrets to store.
#[derive(Default)]
pub(super) struct SuppliedValues {
    /// `[servers.env]`, as references.
    pub(super) env: Vec<(String, String)>,
    /// `[servers.headers]`, as references.
    pub(super) headers: Vec<(String, String)>,
    /// Secrets by name.
    secrets_to_store: Vec<(String, String)>,
}

/// The prefix of the names of one server's secrets: its id for servers in the user's own file, whose folder is `home`;
/// for other files with a hash of the path.
pub(super) fn secret_prefix(home: &Path, id: &str, file: &Path) -> String {
    if file.parent() == home.parent() {
        format!("{id}/")
    } else {
        format!("{id}@{}/", &trust::hash(&file.to_string_lossy())[..8])
    }
}

/// The folder with secret files of one server.
pub(super) fn secret_folder(home: &Path, id: &str, file: &Path) -> PathBuf {
    if file.parent() == home.parent() {
        home.join(id)
    } else {
        let path_hash = trust::hash(&file.to_string_lossy());
        home.join(format!("{id}@{}", &path_hash[..8]))
    }
}

/// Reads and asks for everything that `add` names. Paths that were typed start at `here`; `prefix` is
/// what the names of this server's secrets begin with.
///
/// # Errors
/// A value on the command line, and whatever cannot be read or asked for.
pub(super) fn collect(
    add: &Add,
    here: &Path,
    prefix: Option<&str>,
) -> Result<SuppliedValues, Failure> {
    let mut given = SuppliedValues::default();
    let mut asked = SecretPrompt::new(&add.id);
    for word in &add.env {
        check_name("env", word)?;
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => {
                let elsewhere = as_reference(value, false).map(|v| absolute_reference(v, here));
                (name, elsewhere.or_else(|| as_plain_value(name, value)))
            }
            // A variable of this process is not prompted for.
            None if env::var_os(word).is_some() => (word.as_str(), Some(format!("${{{word}}}"))),
            None => match asked.read(word)? {
                Some(value) => (word.as_str(), Some(given.add_secret(prefix, word, value)?)),
                None => (word.as_str(), Some(format!("${{{word}}}"))),
            },
        };
        let value = value.ok_or_else(|| on_command_line_failure("env", name))?;
        given.env.push((name.to_owned(), value));
    }
    for file in &add.env_file {
        let file = if file.as_os_str() == "-" {
            file.clone()
        } else {
            here.join(file)
        };
        let variables = given.add_file(prefix, &file)?;
        given.env.extend(variables);
    }
    for word in &add.header {
        check_name("header", word)?;
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (
                name,
                as_reference(value, true).map(|v| absolute_reference(v, here)),
            ),
            None => {
                let value = asked.read(word)?.ok_or_else(|| no_terminal_failure(word))?;
                (word.as_str(), Some(given.add_secret(prefix, word, value)?))
            }
        };
        let value = value.ok_or_else(|| on_command_line_failure("header", name))?;
        given.headers.push((name.to_owned(), value));
    }
    Ok(given)
}

impl SuppliedValues {
    /// The names of the secrets.
    pub(super) fn secret_names(&self) -> impl Iterator<Item = &str> {
        self.secrets_to_store.iter().map(|(name, _)| name.as_str())
    }

    /// The entry with placeholders for files that it refers to, which may be created later.
    pub(super) fn with_placeholders(server: &NewServer) -> NewServer {
        let values = |values: &[(String, String)]| {
            let some = |(name, value): &(String, String)| {
                if value.starts_with("file:") {
                    (name.clone(), "kept".to_owned())
                } else {
                    (name.clone(), value.clone())
                }
            };
            values.iter().map(some).collect()
        };
        NewServer {
            env: values(&server.env),
            headers: values(&server.headers),
            ..server.clone()
        }
    }

    /// Adds the variables of a file.
    pub(super) fn add_file(
        &mut self,
        prefix: Option<&str>,
        file: &Path,
    ) -> Result<Vec<(String, String)>, Failure> {
        let variables = read_env_file(file, Path::new("/"))?.into_iter();
        let reference = |(name, value): (String, Option<String>)| {
            let reference = match value {
                Some(value) => self.add_secret(prefix, &name, value)?,
                None => format!("${{{name}}}"),
            };
            Ok((name, reference))
        };
        variables.map(reference).collect()
    }

    /// Adds a named secret; returns the reference to it. An empty value is no secret.
    pub(super) fn add_secret(
        &mut self,
        prefix: Option<&str>,
        name: &str,
        value: String,
    ) -> Result<String, Failure> {
        let usage = |why: &str| {
            let called = if is_plain_name(name) {
                format!("`{name}`")
            } else {
                "a name, which is not repeated as it may be a part of a secret,".to_owned()
            };
            Failure::Usage(format!("{called} {why}"))
        };
        let prefix =
            prefix.ok_or_else(|| usage("has a value, and there is no home to keep it in"))?;
        if value.is_empty() {
            return Ok(value);
        }
        let whole = format!("{prefix}{name}");
        if !has_name_letters(name) || !is_typed_name(&whole) {
            return Err(usage(
                "is no name; letters, digits, '_', '-' and '.' make one, which is not long",
            ));
        }
        check_value(&value).map_err(|why| usage(&format!("cannot be kept: {why}")))?;
        let reference = format!("{SECRET_PREFIX}{whole}");
        self.secrets_to_store.push((whole, value));
        Ok(reference)
    }

    /// Stores the secrets; returns their names.
    ///
    /// # Errors
    /// Those of the store; some secrets may be stored then.
    pub(super) fn store(&self, store: Option<&SecretStore>) -> Result<Vec<&str>, Failure> {
        for (name, value) in &self.secrets_to_store {
            let store = store.ok_or_else(|| Failure::Usage("there is no home".to_owned()))?;
            store.set(Namespace::Named, name, &value.as_str().into())?;
        }
        Ok(self.secret_names().collect())
    }
}

/// Removes the stored secrets of a server.
pub(super) fn remove_stored(store: Option<&SecretStore>, prefix: &str) {
    let forgotten = |store: &SecretStore| {
        for kept in store.list(Namespace::Named)? {
            if kept.name.starts_with(prefix) {
                store.remove(Namespace::Named, &kept.name)?;
            }
        }
        Ok::<(), Failure>(())
    };
    if let Some(Err(error)) = store.map(forgotten) {
        print_error(format_args!("note: secrets of {prefix} stay: {error}"));
    }
}

/// Removes the secret files of a server.
pub(super) fn remove_files(folder: &Path) {
    if let Err(error) = fs::remove_dir_all(folder)
        && error.kind() != io::ErrorKind::NotFound
    {
        print_error(format_args!("note: {} stays: {error}", folder.display()));
    }
}

/// A value that is only a reference: `${NAME}`, `file:PATH`, `secret:NAME`; for a header also a scheme and a variable
/// or `${secret:NAME}`. An empty value counts, too.
fn as_reference(value: &str, header: bool) -> Option<&str> {
    let bare = match value.split_once(' ') {
        Some((scheme, rest)) if header && is_scheme(scheme) => rest,
        Some(_) | None => value,
    };
    let elsewhere = ["file:", SECRET_PREFIX]
        .iter()
        .any(|kind| value.starts_with(kind));
    (value.is_empty() || elsewhere || is_variable_reference(bare)).then_some(value)
}

/// A value that is no secret, as it is written. References are none.
fn as_plain_value(name: &str, value: &str) -> Option<String> {
    let open = !is_secret(name, value) && !is_secret_word(value) && !is_random(value);
    (open && !value.contains("${")).then(|| value.replace('$', "$$"))
}

fn has_name_letters(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    !name.is_empty() && name.chars().all(plain)
}

/// Whether a word in place of a name may be a value, or a part of one.
pub(super) fn may_be_value(name: &str) -> bool {
    is_secret_word(name) || (is_random(name) && name.contains(|c: char| c.is_ascii_lowercase()))
}

/// The name of a variable or a header, which may be displayed.
fn is_plain_name(name: &str) -> bool {
    has_name_letters(name) && !may_be_value(name)
}

/// Rejects words that do not begin with a name.
///
/// # Errors
/// Repeats nothing of it: in `Authorization: Bearer x` the secret is part of the text before a `=`.
fn check_name(option: &str, word: &str) -> Result<(), Failure> {
    let name = word.split_once('=').map_or(word, |(name, _)| name);
    if is_plain_name(name) {
        return Ok(());
    }
    let header = match option {
        "header" => ", NAME='Bearer ${VARIABLE}'; a `:` does not end the name",
        _ => "",
    };
    Err(Failure::Usage(format!(
        "what stands behind `--{option}` does not begin with a name of letters, digits, '_', '-' and '.', and is \
         not repeated here, as it may hold a secret: write `--{option} NAME` and type the value when asked, or say \
         where it is: NAME='${{VARIABLE}}', NAME=secret:NAME, NAME=file:PATH{header}. A secret that was typed just \
         now had better be replaced where it came from"
    )))
}

fn is_scheme(word: &str) -> bool {
    word.len() <= MAX_SCHEME && !word.is_empty() && word.chars().all(|c| c.is_ascii_alphabetic())
}

/// `${NAME}` only: the text after `:-` would be a value.
fn is_variable_reference(text: &str) -> bool {
    let name = text
        .strip_prefix("${")
        .and_then(|rest| rest.strip_suffix('}'));
    let secret = name.and_then(|name| name.strip_prefix(SECRET_PREFIX));
    if let Some(secret) = secret {
        return is_typed_name(secret);
    }
    name.is_some_and(|name| {
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
    })
}

/// A path typed here must mean the same place in a file elsewhere.
fn absolute_reference(value: &str, here: &Path) -> String {
    match value.strip_prefix("file:") {
        Some(path) if !path.starts_with("${") => format!("file:{}", here.join(path).display()),
        Some(_) | None => value.to_owned(),
    }
}

/// Prompts for secrets, one after the other. Echo stays off between two prompts: both answers may have been pasted at
/// once.
pub(super) struct SecretPrompt<'a> {
    id: &'a str,
    /// Open from the first prompt on.
    terminal: Option<HiddenInput>,
}

impl<'a> SecretPrompt<'a> {
    pub(super) fn new(id: &'a str) -> Self {
        Self { id, terminal: None }
    }

    /// Reads a value without echo; `None` without a terminal.
    pub(super) fn read(&mut self, name: &str) -> Result<Option<String>, Failure> {
        if !io::stdin().is_terminal() {
            return Ok(None);
        }
        let terminal = match &mut self.terminal {
            Some(terminal) => terminal,
            none => none.insert(HiddenInput::open()?),
        };
        let typed = terminal.read_secret(&format!("{name} of {} (it is not shown): ", self.id))?;
        if typed.is_empty() {
            Err(Failure::Usage(format!("no value was given for `{name}`")))
        } else {
            Ok(Some(typed))
        }
    }
}

/// Parses a file of variables like container engines: `KEY=VALUE` with the literal value, `KEY` for the kernel's own
/// variable, `#` before a comment. A byte order mark and `export` before a name are ignored.
pub(super) fn read_env_file(
    file: &Path,
    here: &Path,
) -> Result<Vec<(String, Option<String>)>, Failure> {
    let usage = |why: String| Failure::Usage(format!("{}: {why}", file.display()));
    let mut text = String::new();
    let stdin = file.as_os_str() == "-";
    let input: Box<dyn Read> = if stdin {
        Box::new(io::stdin())
    } else {
        Box::new(File::open(here.join(file)).map_err(|e| usage(e.to_string()))?)
    };
    let read = input.take(MAX_ENV_FILE + 1).read_to_string(&mut text);
    read.map_err(|e| usage(e.to_string()))?;
    if text.len() as u64 > MAX_ENV_FILE {
        return Err(usage(format!("more than {MAX_ENV_FILE} bytes")));
    }
    let mut out = Vec::new();
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    for (at, line) in text.lines().enumerate() {
        let line = line.trim_start();
        let exported = line.strip_prefix("export");
        let exported = exported.filter(|rest| rest.starts_with([' ', '\t']));
        let line = exported.map_or(line, str::trim_start);
        if line.trim_end().is_empty() || line.starts_with('#') {
            continue;
        }
        let (name, value) = match line.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (line.trim_end(), None),
        };
        if !is_plain_name(name) {
            return Err(usage(format!("line {} has no KEY=VALUE", at + 1)));
        }
        out.push((name.to_owned(), value));
    }
    Ok(out)
}

/// Never repeats the value.
fn on_command_line_failure(option: &str, name: &str) -> Failure {
    let file = match option {
        "env" => ", or put it into a file for --env-file",
        _ => "",
    };
    Failure::Usage(format!(
        "`--{option} {name}=…` looks like a secret, and shows its value to every user of this machine and \
         in the history of the shell: write `--{option} {name}` and type it when asked{file}, or say where \
         it is: {name}='${{VARIABLE}}', {name}=secret:NAME, {name}=file:PATH"
    ))
}

fn no_terminal_failure(name: &str) -> Failure {
    Failure::Usage(format!(
        "there is no terminal to ask for `{name}` on; say where it is: {name}='${{VARIABLE}}', \
         {name}='Bearer ${{VARIABLE}}', {name}=file:PATH"
    ))
}

/// Rejects a URL that contains a password or a key.
///
/// # Errors
/// Names the part, never its value.
pub(super) fn check_url(url: &str) -> Result<(), Failure> {
    let refused = |what: &str| {
        Err(Failure::Usage(format!(
            "`--url` holds {what}, which shows it to every user of this machine: send it as a header \
             (`--header Authorization` asks for it), or put the variable it is in there: ${{VARIABLE}}"
        )))
    };
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
    let authority = place.split('/').next().unwrap_or_default();
    if let Some((user, _)) = authority.rsplit_once('@')
        && !user.split(':').all(is_variable_reference)
    {
        return refused("a user or a password");
    }
    let literal = |pair: &&str| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        is_secret_name(name) && !value.is_empty() && !is_variable_reference(value)
    };
    match query.split('&').find(literal) {
        Some(pair) => {
            let name = pair.split('=').next().unwrap_or_default();
            refused(&format!("`{name}=…`"))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::args::{Cli, Command, Invocation, Servers};

    /// `Authorization: Bearer x` is how a header is written elsewhere.
    #[test]
    fn invalid_names_are_not_repeated() {
        let Invocation::Command(Command::Servers(Servers::Add(mut add))) =
            Cli::parse_from(["mgp", "servers", "add", "x", "--url", "https://h.test"]).command
        else {
            panic!("it is an add");
        };
        for wrong in [
            "Authorization: Bearer s3cret",
            "Authorization: Bearer s3cret==",
            "X-Api-Key:s3cret",
            "ghp_s3cret0123456789abcdef",
            "ghp_s3cret0123456789abcdef=",
            "",
        ] {
            for is_header in [true, false] {
                (add.header, add.env) = if is_header {
                    (vec![wrong.to_owned()], Vec::new())
                } else {
                    (Vec::new(), vec![wrong.to_owned()])
                };
                let refused = collect(&add, Path::new("/"), Some("x/")).err().unwrap();
                let refused = refused.to_string();
                assert!(!refused.contains("s3cret"), "{refused}");
                assert!(refused.contains("NAME=file:PATH"), "{refused}");
            }
        }
        let mut values = SuppliedValues::default();
        let refused = values.add_secret(Some("x/"), "a s3cret", "v".to_owned());
        assert!(!refused.unwrap_err().to_string().contains("s3cret"));
    }

    #[test]
    fn only_references_are_accepted_on_the_command_line() {
        for good in ["", "${KEY}", "file:./key", "secret:key", "${secret:key}"] {
            assert_eq!(as_reference(good, false), Some(good));
        }
        for bad in [
            "sk-1",
            "${KEY:-sk-1}",
            "Bearer ${KEY}",
            "x${KEY}",
            "${A}${B}",
        ] {
            assert_eq!(as_reference(bad, false), None, "{bad}");
        }
        assert!(as_reference("Bearer ${KEY}", true).is_some());
        assert!(as_reference("Bearer ${secret:key}", true).is_some());
        for bad in ["Bearer sk-1", "sk1secretsecret ${KEY}", "eu"] {
            assert_eq!(as_reference(bad, true), None, "{bad}");
        }
    }

    #[test]
    fn values_unlike_secrets_may_be_typed() {
        for (name, value, written) in [
            ("LOG_LEVEL", "debug", "debug"),
            ("PRICE", "$5", "$$5"),
            ("ROOT", "/home/me/notes", "/home/me/notes"),
            (
                "API_URL",
                "https://a.test/v1?page=2",
                "https://a.test/v1?page=2",
            ),
        ] {
            assert_eq!(
                as_plain_value(name, value).as_deref(),
                Some(written),
                "{name}"
            );
        }
        for (name, value) in [
            ("API_KEY", "abc"),
            ("LEVEL", "ghp_0123456789abcdefghij"),
            ("LEVEL", "Bearer abcdefgh"),
            ("LEVEL", "AbC123dEf456GhI789jKl0"),
            ("API_URL", "https://me:pw@a.test"),
            ("LEVEL", "${A:-x}"),
        ] {
            assert_eq!(as_plain_value(name, value), None, "{name}");
        }
    }

    #[test]
    fn urls_with_keys_are_rejected_without_repeating_them() {
        for good in [
            "https://h/mcp",
            "https://h/mcp?region=eu&token=${T}",
            "https://${U}:${P}@h/mcp",
            "${URL}",
        ] {
            check_url(good).unwrap();
        }
        for bad in [
            "https://me:s3cret@h/mcp",
            "https://s3cret@h/mcp",
            "https://h/mcp?api_key=s3cret",
            "https://h/mcp?a=b&access-token=s3cret",
        ] {
            let refused = check_url(bad).unwrap_err().to_string();
            assert!(
                !refused.contains("s3cret") && refused.contains("--header"),
                "{refused}"
            );
        }
    }

    #[test]
    fn files_of_variables_are_parsed_like_container_engines_do() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(
            folder.path().join("x.env"),
            "# remark\n\nA=b = c \n  B=\nHOME\n",
        )
        .unwrap();
        let read = read_env_file(Path::new("x.env"), folder.path()).unwrap();
        let want = [("A", Some("b = c ")), ("B", Some("")), ("HOME", None)];
        let want = want.map(|(name, value)| (name.to_owned(), value.map(str::to_owned)));
        assert_eq!(read, want);
        for wrong in ["a secret\n", "ghp_secret0123456789abcdef\n"] {
            fs::write(folder.path().join("x.env"), wrong).unwrap();
            let refused = read_env_file(Path::new("x.env"), folder.path()).unwrap_err();
            assert!(!refused.to_string().contains("secret"), "{refused}");
        }
        let shell = "\u{feff}export A=1\nexport\tB = 2\nexported=3\n";
        fs::write(folder.path().join("x.env"), shell.replace(" = ", "=")).unwrap();
        let read = read_env_file(Path::new("x.env"), folder.path()).unwrap();
        let want = [("A", "1"), ("B", "2"), ("exported", "3")];
        let want = want.map(|(name, value)| (name.to_owned(), Some(value.to_owned())));
        assert_eq!(read, want);
    }
}
