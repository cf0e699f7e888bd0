#!/bin/sh
# Installs the files of an unpacked tarball: `sudo ./install.sh [PREFIX]`. `DESTDIR` stands for `/`.
# The files belong to the user who runs it, not to the one who unpacked the tarball.
set -e
umask 022
prefix=${1:-/usr/local}
base=$DESTDIR$prefix
here=$(dirname "$0")
while read -r file; do
    mkdir -p "$base/$(dirname "$file")"
    # A running program cannot be overwritten, only replaced.
    rm -f "$base/$file"
    cp -P "$here/tree/$file" "$base/$file"
done < "$here/files"
for file in "$base"/lib/systemd/system/mqnet*.service "$base"/share/qemu/vhost-user/*mqnet*.json; do
    sed -i "s#/usr/\(bin/mqnet\|libexec/vhost-user-net\)#$prefix/\1#" "$file"
done
config=$DESTDIR/etc/mqnet/mqnet.toml
if [ ! -e "$config" ]; then
    mkdir -p "$DESTDIR/etc/mqnet"
    cp "$here/etc/mqnet/mqnet.toml" "$config"
fi
echo "installed to $prefix; ./uninstall.sh $prefix removes it"
