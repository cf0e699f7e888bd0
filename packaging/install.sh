#!/bin/sh
# Installs the files of an unpacked tarball: `sudo ./install.sh [PREFIX]`.
set -e
prefix=${1:-/usr/local}
here=$(dirname "$0")
while read -r file; do
    mkdir -p "$prefix/$(dirname "$file")"
    cp -a "$here/tree/$file" "$prefix/$file"
done < "$here/files"
for unit in "$prefix"/lib/systemd/system/mqnet*.service; do
    sed -i "s#/usr/bin/mqnet#$prefix/bin/mqnet#" "$unit"
done
echo "installed to $prefix; ./uninstall.sh $prefix removes it"
