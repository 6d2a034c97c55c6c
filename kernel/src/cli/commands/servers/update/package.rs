//! The package that a server's command downloads and runs, parsed as npx, uvx and others do.

use std::cmp::Ordering;
use std::ops::Range;

/// The source of the list of versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Registry {
    /// `npm view`.
    Npm,
    /// `pnpm view`.
    Pnpm,
    /// `uv pip compile`.
    Uv,
    /// `pip index versions`.
    Pip,
    /// The registry of a container image.
    Image,
}

impl Registry {
    /// The program that queries it.
    pub(super) const fn program(self) -> &'static str {
        match self {
            Self::Npm => "npm",
            Self::Pnpm => "pnpm",
            Self::Uv => "uv",
            Self::Pip => "pip",
            Self::Image => "the registry of the image",
        }
    }

    fn is_python(self) -> bool {
        matches!(self, Self::Uv | Self::Pip)
    }
}

/// A package in a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Package {
    pub(super) registry: Registry,
    /// Its name, without extras.
    pub(super) name: String,
    /// The exact version, if any.
    pub(super) version: Option<String>,
    /// The index of its argument.
    pub(super) argument: usize,
    /// The part of that argument that a version replaces.
    version_range: Range<usize>,
}

/// Why an entry has no package to update.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum PackageError {
    #[error(
        "`{0}` does not download what it runs; a new version is installed the way this one was"
    )]
    OtherProgram(String),
    #[error("its arguments name no package")]
    NoName,
    #[error("`{0}` is no package of a registry; a newer one is named by hand")]
    NotFromRegistry(String),
    #[error("the package in `{0}` comes out of a variable; it is changed where that is set")]
    Variable(String),
}

/// How a program parses the arguments before the package.
struct PackageLauncher {
    registry: Registry,
    /// Words before the options.
    leading_words: &'static [&'static str],
    /// Options whose value is the package.
    package: &'static [&'static str],
    /// Other options with a value.
    value_options: &'static [&'static str],
}

const NPM_VALUED: &[&str] = &[
    "-c",
    "--call",
    "-w",
    "--workspace",
    "--registry",
    "--cache",
    "--prefix",
    "--userconfig",
    "--loglevel",
    "--node-options",
    "--script-shell",
];
const UV_VALUED: &[&str] = &[
    "--with",
    "--with-editable",
    "--with-requirements",
    "-p",
    "--python",
    "-i",
    "--index-url",
    "--index",
    "--default-index",
    "--extra-index-url",
    "-f",
    "--find-links",
    "--directory",
    "--project",
    "--cache-dir",
    "--config-file",
    "-c",
    "--constraints",
    "--overrides",
    "--env-file",
    "--refresh-package",
    "-P",
    "--upgrade-package",
    "--index-strategy",
    "--keyring-provider",
    "--resolution",
    "--prerelease",
    "--exclude-newer",
    "--link-mode",
    "--color",
    "-C",
    "--config-setting",
];
const PIPX_VALUED: &[&str] = &[
    "--python",
    "--pip-args",
    "-i",
    "--index-url",
    "--suffix",
    "--with",
    "--backend",
];

/// Options of `docker run` with a value.
const RUN_VALUED: &[&str] = &[
    "-e",
    "--env",
    "--env-file",
    "-v",
    "--volume",
    "--volumes-from",
    "--mount",
    "--tmpfs",
    "--name",
    "--network",
    "--net",
    "--network-alias",
    "-p",
    "--publish",
    "--expose",
    "-w",
    "--workdir",
    "-u",
    "--user",
    "--userns",
    "--group-add",
    "--entrypoint",
    "--platform",
    "--pull",
    "-l",
    "--label",
    "--label-file",
    "-m",
    "--memory",
    "--memory-swap",
    "--cpus",
    "-c",
    "--cpu-shares",
    "--cpuset-cpus",
    "--pids-limit",
    "--ulimit",
    "--shm-size",
    "--add-host",
    "--dns",
    "--cap-add",
    "--cap-drop",
    "--security-opt",
    "--device",
    "--gpus",
    "-h",
    "--hostname",
    "--ip",
    "--ipc",
    "--pid",
    "--log-driver",
    "--log-opt",
    "--restart",
    "--runtime",
    "--stop-signal",
    "--stop-timeout",
    "--sysctl",
    "--cidfile",
    "-a",
    "--attach",
    "--annotation",
    "--cgroupns",
    "--health-cmd",
];

/// The known launchers, by the name of the program.
fn launchers_for(program: &str) -> &'static [PackageLauncher] {
    const NPX: PackageLauncher = PackageLauncher {
        registry: Registry::Npm,
        leading_words: &[],
        package: &["-p", "--package"],
        value_options: NPM_VALUED,
    };
    const UVX: PackageLauncher = PackageLauncher {
        registry: Registry::Uv,
        leading_words: &[],
        package: &["--from"],
        value_options: UV_VALUED,
    };
    const RUN: PackageLauncher = PackageLauncher {
        registry: Registry::Image,
        leading_words: &[],
        package: &[],
        value_options: RUN_VALUED,
    };
    match program {
        "docker" | "podman" | "nerdctl" => &[
            PackageLauncher {
                leading_words: &["run"],
                ..RUN
            },
            PackageLauncher {
                leading_words: &["container", "run"],
                ..RUN
            },
        ],
        "npx" | "bunx" => &[NPX],
        "npm" => &[
            PackageLauncher {
                leading_words: &["exec"],
                ..NPX
            },
            PackageLauncher {
                leading_words: &["x"],
                ..NPX
            },
        ],
        "bun" => &[PackageLauncher {
            leading_words: &["x"],
            ..NPX
        }],
        "pnpx" => &[PackageLauncher {
            registry: Registry::Pnpm,
            ..NPX
        }],
        "pnpm" => &[PackageLauncher {
            registry: Registry::Pnpm,
            leading_words: &["dlx"],
            ..NPX
        }],
        "uvx" => &[UVX],
        "uv" => &[
            PackageLauncher {
                leading_words: &["tool", "run"],
                ..UVX
            },
            PackageLauncher {
                leading_words: &["x"],
                ..UVX
            },
        ],
        "pipx" => &[PackageLauncher {
            registry: Registry::Pip,
            leading_words: &["run"],
            package: &["--spec"],
            value_options: PIPX_VALUED,
        }],
        _ => &[],
    }
}

impl Package {
    /// Parses the package from a command and its arguments.
    pub(super) fn from_command(command: &str, args: &[String]) -> Result<Self, PackageError> {
        let program = command.rsplit('/').next().unwrap_or(command);
        let fits = |launcher: &&PackageLauncher| {
            let begins = args.iter().zip(launcher.leading_words);
            args.len() >= launcher.leading_words.len()
                && begins.into_iter().all(|(arg, word)| arg == word)
        };
        let launcher = launchers_for(program).iter().find(fits);
        let launcher = launcher.ok_or_else(|| PackageError::OtherProgram(command.to_owned()))?;
        let (argument, start) =
            find_package_argument(launcher, args).ok_or(PackageError::NoName)?;
        Self::read(launcher.registry, argument, &args[argument], start)
    }

    fn read(
        registry: Registry,
        argument: usize,
        whole: &str,
        start: usize,
    ) -> Result<Self, PackageError> {
        let text = &whole[start..];
        if text.contains("${") {
            return Err(PackageError::Variable(text.to_owned()));
        }
        let (name, version, length) = match registry {
            Registry::Uv | Registry::Pip => parse_python(text),
            Registry::Npm | Registry::Pnpm => parse_node(text),
            Registry::Image => parse_image(text),
        }
        .ok_or_else(|| PackageError::NotFromRegistry(text.to_owned()))?;
        Ok(Self {
            registry,
            name: name.to_owned(),
            version: version.map(str::to_owned),
            argument,
            version_range: start + length..whole.len(),
        })
    }

    /// The argument with this version.
    pub(super) fn with_version(&self, argument: &str, version: &str) -> String {
        let between = match self.registry.is_python() {
            true if !argument[self.version_range.clone()].starts_with('@') => "==",
            false if self.registry == Registry::Image => ":",
            true | false => "@",
        };
        format!(
            "{}{between}{version}",
            &argument[..self.version_range.start]
        )
    }
}

/// The argument that names the package, and the offset in it.
fn find_package_argument(launcher: &PackageLauncher, args: &[String]) -> Option<(usize, usize)> {
    let mut plain = None;
    let mut at = launcher.leading_words.len();
    while let Some(arg) = args.get(at) {
        let (option, value) = arg.split_once('=').unwrap_or((arg, ""));
        if arg == "--" || !arg.starts_with('-') {
            plain = Some(at + usize::from(arg == "--"));
            break;
        }
        if launcher.package.contains(&option) {
            return if value.is_empty() {
                args.get(at + 1).map(|_| (at + 1, 0))
            } else {
                Some((at, option.len() + 1))
            };
        }
        at += 1 + usize::from(launcher.value_options.contains(&&**arg));
    }
    plain.filter(|at| *at < args.len()).map(|at| (at, 0))
}

/// `@scope/name@1.2.3`: the name, the version if exact, and the length without the version.
fn parse_node(text: &str) -> Option<(&str, Option<&str>, usize)> {
    let end = text.char_indices().skip(1).find(|(_, c)| *c == '@');
    let length = end.map_or(text.len(), |(at, _)| at);
    let (name, rest) = text.split_at(length);
    let scoped = name.strip_prefix('@');
    let (scope, own) = match scoped {
        Some(scoped) => scoped.split_once('/')?,
        None => ("scope", name),
    };
    let exact = rest
        .strip_prefix('@')
        .filter(|version| is_exact(version, 3));
    let version_like = rest
        .strip_prefix('@')
        .is_none_or(|rest| !rest.contains([':', '/']));
    (is_name(scope) && is_name(own) && version_like).then_some((name, exact, length))
}

/// `name[extra]==1.2.3` or `name@1.2.3`.
fn parse_python(text: &str) -> Option<(&str, Option<&str>, usize)> {
    let behind_extras = text.find(']').unwrap_or(0);
    let length = text[behind_extras..].find(['=', '@', '<', '>', '~', '!', ';', ' ', ',']);
    let length = length.map_or(text.len(), |at| behind_extras + at);
    let (named, rest) = text.split_at(length);
    let (name, extras) = named.split_once('[').unwrap_or((named, "]"));
    let rest_of = |mark| rest.strip_prefix(mark);
    let exact = rest_of("==").or_else(|| rest_of("@"));
    let exact = exact.filter(|version| is_exact(version, 1));
    let from_elsewhere = rest.contains([':', '/']);
    (is_name(name) && extras.ends_with(']') && !from_elsewhere).then_some((name, exact, length))
}

/// `ghcr.io/acme/db:1.2.3`: the tag follows the last colon after the last slash. An image with a digest is pinned to
/// it, and is not updated.
fn parse_image(text: &str) -> Option<(&str, Option<&str>, usize)> {
    let path = text.rfind('/').map_or(0, |at| at + 1);
    let length = text[path..].find(':').map_or(text.len(), |at| path + at);
    let (name, rest) = text.split_at(length);
    let bare = |tag: &str| tag.strip_prefix('v').unwrap_or(tag).to_owned();
    let exact = rest.strip_prefix(':').filter(|tag| is_exact(&bare(tag), 2));
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-/:".contains(c);
    let is_image = !name.is_empty() && name.starts_with(|c: char| c.is_ascii_alphanumeric());
    (is_image && text.chars().all(plain)).then_some((name, exact, length))
}

fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-~".contains(c);
    !name.is_empty() && !name.starts_with('.') && name.chars().all(plain)
}

/// An exact version of at least so many numbers: no range and no tag.
pub(in crate::cli::commands::servers) fn is_exact(version: &str, least: usize) -> bool {
    let numbers = version.split(['-', '+']).next().unwrap_or_default();
    let parts = numbers.split('.').count();
    parts >= least && version.starts_with(|c: char| c.is_ascii_digit()) && is_version(version)
}

/// Whether a text is a valid version for a command.
pub(super) fn is_version(version: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || ".+-!_".contains(c);
    version.starts_with(|c: char| c.is_ascii_alphanumeric()) && version.chars().all(plain)
}

/// Compares two versions by their numbers; one with a suffix (`-rc.1`, `rc1`) precedes the one without.
pub(super) fn compare_versions(one: &str, other: &str) -> Ordering {
    let read = |version: &str| {
        let version = version.split('+').next().unwrap_or_default();
        let version = version.strip_prefix('v').unwrap_or(version).to_owned();
        let end = version.find(|c: char| !c.is_ascii_digit() && c != '.');
        let (numbers, rest) = version.split_at(end.unwrap_or(version.len()));
        let numbers = numbers.split('.').map(|number| number.parse().unwrap_or(0));
        let mut numbers: Vec<u64> = numbers.collect();
        while numbers.last() == Some(&0) {
            numbers.pop();
        }
        (numbers, rest.is_empty(), rest.to_owned())
    };
    read(one).cmp(&read(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Result<Package, PackageError> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        Package::from_command(&words[0], &words[1..])
    }

    /// The package, its version, and the line with another version.
    fn read(line: &str) -> (String, Option<String>, String) {
        let package = of(line).unwrap_or_else(|why| panic!("{line}: {why}"));
        let mut words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let argument = &mut words[package.argument + 1];
        *argument = package.with_version(argument, "9.9.9");
        (package.name, package.version, words.join(" "))
    }

    #[test]
    fn a_pinned_package_is_found_in_every_launcher() {
        let lines = [
            (
                "npx -y @acme/db@1.2.3 --port 1",
                "@acme/db",
                "npx -y @acme/db@9.9.9 --port 1",
            ),
            ("/usr/bin/npx db@1.2.3", "db", "/usr/bin/npx db@9.9.9"),
            (
                "npx --package=db@1.2.3 -- dbd",
                "db",
                "npx --package=db@9.9.9 -- dbd",
            ),
            (
                "npx --registry https://r -p db@1.2.3 dbd",
                "db",
                "npx --registry https://r -p db@9.9.9 dbd",
            ),
            ("npm exec -- db@1.2.3", "db", "npm exec -- db@9.9.9"),
            ("pnpm dlx db@1.2.3 x@y", "db", "pnpm dlx db@9.9.9 x@y"),
            ("bunx --bun db@1.2.3", "db", "bunx --bun db@9.9.9"),
            ("uvx db@1.2.3", "db", "uvx db@9.9.9"),
            (
                "uvx --python 3.12 db[a,b]==1.2.3 -v",
                "db",
                "uvx --python 3.12 db[a,b]==9.9.9 -v",
            ),
            (
                "uvx --with x==1.0 --from db==1.2.3 dbd",
                "db",
                "uvx --with x==1.0 --from db==9.9.9 dbd",
            ),
            ("uv tool run db==1.2.3", "db", "uv tool run db==9.9.9"),
            (
                "pipx run --spec db==1.2.3 dbd",
                "db",
                "pipx run --spec db==9.9.9 dbd",
            ),
            (
                "docker run -i --rm -e TOKEN -v /a:/b acme/db:1.2.3 --flag x:1.0",
                "acme/db",
                "docker run -i --rm -e TOKEN -v /a:/b acme/db:9.9.9 --flag x:1.0",
            ),
            (
                "podman container run --env=A=b localhost:5000/db:1.2.3",
                "localhost:5000/db",
                "podman container run --env=A=b localhost:5000/db:9.9.9",
            ),
        ];
        for (line, name, changed) in lines {
            let pinned = Some("1.2.3".to_owned());
            assert_eq!(read(line), (name.to_owned(), pinned, changed.to_owned()));
        }
    }

    #[test]
    fn ranges_and_tags_are_not_exact_and_are_replaced_as_a_whole() {
        for (line, changed) in [
            ("npx -y db", "npx -y db@9.9.9"),
            ("npx db@latest", "npx db@9.9.9"),
            ("npx db@^1.2.3", "npx db@9.9.9"),
            ("npx db@1.2", "npx db@9.9.9"),
            ("uvx db", "uvx db==9.9.9"),
            ("uvx db>=1,<2", "uvx db==9.9.9"),
            ("uvx db==1.*", "uvx db==9.9.9"),
            ("uvx db@latest", "uvx db@9.9.9"),
            ("docker run -i db", "docker run -i db:9.9.9"),
            ("docker run db:latest", "docker run db:9.9.9"),
        ] {
            assert_eq!(
                read(line),
                ("db".to_owned(), None, changed.to_owned()),
                "{line}"
            );
        }
    }

    #[test]
    fn commands_without_a_registry_package_are_rejected() {
        assert!(matches!(
            of("node x.js"),
            Err(PackageError::OtherProgram(_))
        ));
        assert!(matches!(
            of("npm start"),
            Err(PackageError::OtherProgram(_))
        ));
        assert_eq!(of("npx -y"), Err(PackageError::NoName));
        assert_eq!(of("uvx --from"), Err(PackageError::NoName));
        for line in [
            "npx github:acme/db",
            "npx ./db",
            "npx db@npm:other@1.2.3",
            "uvx git+https://example.org/db",
            "uvx --from db@git+https://example.org/db dbd",
            "docker run -i db@sha256:0123",
        ] {
            assert!(
                matches!(of(line), Err(PackageError::NotFromRegistry(_))),
                "{line}"
            );
        }
        assert!(matches!(
            of("npx db@${VERSION}"),
            Err(PackageError::Variable(_))
        ));
    }

    #[test]
    fn versions_are_compared_by_their_numbers() {
        for (older, newer) in [
            ("1.2.9", "1.2.10"),
            ("1.9.0", "2.0.0"),
            ("2.0.0-rc.1", "2.0.0"),
            ("2.0rc1", "2.0"),
            ("2026.8.18", "2026.8.31"),
        ] {
            assert_eq!(
                compare_versions(older, newer),
                Ordering::Less,
                "{older} {newer}"
            );
        }
        assert_eq!(compare_versions("1.0", "1.0.0"), Ordering::Equal);
    }
}
