#!/bin/sh
# Removes the files of an unpacked tarball: `sudo ./uninstall.sh [PREFIX]`. `DESTDIR` stands for `/`.
# The list `files` is written by `cargo xtask package`. Configuration files stay.
set -e
prefix=${1:-/usr/local}
base=$DESTDIR$prefix
here=$(dirname "$0")
while read -r file; do
    rm -f "$base/$file"
done < "$here/files"
rmdir "$base/share/doc/mqnet" 2> /dev/null || true
echo "removed from $prefix; /etc/mqnet stays"
