#!/bin/sh
# Installs mgp {{VERSION}} for this user, from {{URL}}. Nothing is installed before its checksum was compared.
#
#   sh install.sh                        into ~/.local
#   sh install.sh --prefix /usr/local    elsewhere
#   sh install.sh --from FOLDER_OR_URL   from a copy of the release
#   sh install.sh --remove               removes what was installed; configuration and data stay
set -eu

version={{VERSION}}
from='{{URL}}'
prefix=${HOME:-}/.local
remove=false
[ -n "${HOME:-}" ] || prefix=
while [ $# -gt 0 ]; do
  case $1 in
    --prefix | --from)
      [ $# -gt 1 ] || { echo "install.sh: $1 needs a value" >&2; exit 2; }
      [ "$1" = --prefix ] && prefix=$2 || from=$2
      shift 2
      ;;
    --remove) remove=true; shift ;;
    *) echo "install.sh: unknown option $1 (--prefix DIR, --from FOLDER_OR_URL, --remove)" >&2; exit 2 ;;
  esac
done
from=${from%/}
[ -n "$prefix" ] || { echo "install.sh: there is no HOME; say where with --prefix DIR" >&2; exit 2; }

files="share/bash-completion/completions/mgp share/zsh/site-functions/_mgp share/fish/vendor_completions.d/mgp.fish"
if $remove; then
  rm -f "$prefix/bin/mgp" "$prefix"/share/man/man1/mgp.1 "$prefix"/share/man/man1/mgp-*.1
  for file in $files; do rm -f "$prefix/$file"; done
  rm -rf "$prefix/share/doc/mgp"
  echo "mgp is removed from $prefix; its configuration and data stay"
  exit 0
fi

case "$(uname -s) $(uname -m)" in
  "Linux x86_64") machine=x86_64-linux ;;
  "Linux aarch64" | "Linux arm64") machine=aarch64-linux ;;
  *)
    echo "install.sh: there is no build for $(uname -s) on $(uname -m); build mgp from its sources" >&2
    exit 1
    ;;
esac
archive=mgp-$version-$machine.tar.gz

have=$(getconf GNU_LIBC_VERSION 2>/dev/null | sed 's/^glibc //')
if [ -z "$have" ]; then
  echo "install.sh: this system has no GNU C library (glibc {{GLIBC}} or newer); build mgp from its sources" >&2
  exit 1
fi
if [ "$(printf '%s\n' {{GLIBC}} "$have" | sort -V | head -n 1)" != "{{GLIBC}}" ]; then
  echo "install.sh: mgp needs glibc {{GLIBC}} or newer, this system has $have; build mgp from its sources" >&2
  exit 1
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

fetch() {
  case $from in
    http://* | https://*)
      if command -v curl >/dev/null 2>&1; then
        curl -fsSL --retry 3 -o "$work/$1" "$from/$1"
      elif command -v wget >/dev/null 2>&1; then
        wget -q -O "$work/$1" "$from/$1"
      else
        echo "install.sh: curl or wget is needed" >&2
        return 1
      fi
      ;;
    *) cp "${from#file://}/$1" "$work/$1" ;;
  esac || { echo "install.sh: $from/$1 cannot be read" >&2; exit 1; }
}

fetch SHA256SUMS
grep "  $archive\$" "$work/SHA256SUMS" >"$work/sum" || {
  echo "install.sh: $from has no $archive" >&2
  exit 1
}
fetch "$archive"
if command -v sha256sum >/dev/null 2>&1; then
  sum="sha256sum -c"
else
  sum="shasum -a 256 -c"
fi
(cd "$work" && $sum sum >/dev/null 2>&1) || {
  echo "install.sh: $archive does not have the checksum of SHA256SUMS; nothing was installed" >&2
  exit 1
}

tar -xzf "$work/$archive" -C "$work"
cd "$work/mgp-$version-$machine"
find share -type d | while read -r folder; do mkdir -p "$prefix/$folder"; done
find share -type f | while read -r file; do cp "$file" "$prefix/$file"; done
mkdir -p "$prefix/bin"
# In one step: a kernel that runs keeps its own program.
cp bin/mgp "$prefix/bin/.mgp-new"
chmod 755 "$prefix/bin/.mgp-new"
mv -f "$prefix/bin/.mgp-new" "$prefix/bin/mgp"

echo "mgp $version is installed: $prefix/bin/mgp"
case ":$PATH:" in
  *":$prefix/bin:"*) echo "try it: mgp demo" ;;
  *) echo "$prefix/bin is not in your PATH: add it, or run $prefix/bin/mgp demo" ;;
esac
