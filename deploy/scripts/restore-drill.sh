#!/bin/sh
# restore-drill.sh BACKUP: restores a backup into a temporary directory and checks every library there. Nothing of the
# running server is touched. Needs as much free space in TMPDIR as the backup has.
set -eu
umask 077
backup=${1:?usage: restore-drill.sh BACKUP}
scratch=$(mktemp -d)
trap 'rm -rf -- "$scratch"' EXIT

florilegium restore "$backup" --data-dir "$scratch/data"
florilegium check --data-dir "$scratch/data"
florilegium user list --data-dir "$scratch/data" > /dev/null
echo "$backup can be restored"
