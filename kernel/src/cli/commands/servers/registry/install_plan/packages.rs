//! Packages of npm, PyPI and container registries, in exact versions.

use super::{InstallError, InstallSource};
use crate::cli::commands::servers::registry::server_json::{PublishedInput, PublishedPackage};
use crate::cli::commands::servers::update::is_exact;

/// The command that runs a package.
///
/// # Errors
/// It is no exact version of a package in a public registry.
pub(super) fn package_source(package: &PublishedPackage) -> Result<InstallSource, InstallError> {
    if !["", "stdio"].contains(&package.transport.kind.as_str()) {
        return Err(InstallError::OtherTransport);
    }
    let identifier = package.identifier.as_str();
    let refused = || InstallError::InvalidIdentifier(identifier.chars().take(100).collect());
    let base = package.registry_base_url.as_deref().unwrap_or_default();
    let base_is = |known: &[&str]| {
        let base = base.trim_end_matches('/');
        if base.is_empty() || known.contains(&base) {
            Ok(())
        } else {
            Err(InstallError::OtherRegistry(
                base.chars().take(100).collect(),
            ))
        }
    };
    let pinned = |least| {
        let version = package.version.as_deref();
        let version = version.filter(|version| is_pinned(version, least));
        version.ok_or_else(|| InstallError::NotPinned(identifier.to_owned()))
    };
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    let (before, middle, docker): (Vec<String>, _, _) = match package.registry_type.as_str() {
        "npm" => {
            base_is(&["https://registry.npmjs.org"])?;
            let bare = identifier
                .strip_prefix('@')
                .map_or(Some(identifier), |scoped| {
                    let (scope, name) = scoped.split_once('/')?;
                    is_safe_argument(scope).then_some(name)
                });
            bare.filter(|name| is_safe_argument(name))
                .ok_or_else(refused)?;
            let whole = format!("{identifier}@{}", pinned(3)?);
            (words(&["npx"]), vec!["-y".to_owned(), whole], false)
        }
        "pypi" => {
            base_is(&["https://pypi.org"])?;
            Some(identifier)
                .filter(|name| is_safe_argument(name))
                .ok_or_else(refused)?;
            let whole = format!("{identifier}=={}", pinned(1)?);
            (words(&["uvx"]), vec![whole], false)
        }
        _ => {
            base_is(&["https://docker.io", "https://ghcr.io", "https://quay.io"])?;
            let host = match base.trim_end_matches('/').strip_prefix("https://") {
                Some("docker.io") | None => String::new(),
                Some(host) => format!("{host}/"),
            };
            let image =
                pinned_image(identifier, package.version.as_deref()).ok_or_else(refused)??;
            let image = if image.starts_with(&host) {
                image
            } else {
                format!("{host}{image}")
            };
            (words(&["docker", "run", "-i", "--rm"]), vec![image], true)
        }
    };
    Ok(InstallSource {
        words_before: before,
        runtime_arguments: without_implied_options(&package.runtime_arguments),
        words_between: middle,
        arguments: package.package_arguments.clone(),
        variables: package.environment_variables.clone(),
        is_docker: docker,
        ..InstallSource::default()
    })
}

/// Removes options that are always passed to npx and docker.
fn without_implied_options(inputs: &[PublishedInput]) -> Vec<PublishedInput> {
    let known = ["-y", "--yes", "-i", "--rm", "run"];
    let said = |input: &&PublishedInput| {
        let word = match input.name.as_str() {
            "" => input.value.as_deref().unwrap_or_default(),
            name => name,
        };
        !known.contains(&word)
    };
    inputs.iter().filter(said).cloned().collect()
}

/// An image with a version tag, or a digest.
fn pinned_image(identifier: &str, version: Option<&str>) -> Option<Result<String, InstallError>> {
    let (name, digest) = match identifier.split_once('@') {
        Some((name, digest)) => (name, Some(digest)),
        None => (identifier, None),
    };
    let last = name.rsplit('/').next().unwrap_or_default();
    let (bare, tag) = match last.split_once(':') {
        Some((_, tag)) => (&name[..name.len() - tag.len() - 1], Some(tag)),
        None => (name, None),
    };
    let plain = |part: &str| {
        let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-:".contains(c);
        part.starts_with(|c: char| c.is_ascii_alphanumeric()) && part.chars().all(fits)
    };
    if !bare.split('/').all(plain) {
        return None;
    }
    if let Some(digest) = digest {
        let hex = digest.strip_prefix("sha256:")?;
        let whole = hex.len() == 64 && hex.bytes().all(|b| b.is_ascii_hexdigit());
        return whole.then(|| Ok(format!("{name}@{digest}")));
    }
    let tag = tag.or(version).filter(|tag| {
        let bare = tag.strip_prefix('v').unwrap_or(tag);
        is_pinned(bare, 2)
    });
    Some(match tag {
        Some(tag) => Ok(format!("{bare}:{tag}")),
        None => Err(InstallError::NotPinned(name.to_owned())),
    })
}

/// An exact version of at least so many numbers: no range and no tag.
fn is_pinned(version: &str, least: usize) -> bool {
    let open = |part: &str| part.eq_ignore_ascii_case("x");
    is_exact(version, least) && !version.split(['.', '-', '+']).any(open)
}

/// A name that no launcher takes for an option, a path or an address.
fn is_safe_argument(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || "._-~".contains(c);
    text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.chars().all(fits)
}
