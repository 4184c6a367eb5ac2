#!/bin/sh
# backup.sh DIR [KEEP]: backs up all users to DIR/TIME, tries to restore the backup, and deletes all but the newest KEEP
# (14). The server can keep running. The exit code is 0 only if the new backup is complete and can be restored; otherwise
# it stays as DIR/TIME.partial until a run at least an hour later.
set -eu
umask 077
folder=${1:?usage: backup.sh DIR [KEEP]}
keep=${2:-14}
time=$(date -u +%Y%m%dT%H%M%SZ)
scripts=$(dirname "$0")

mkdir -p "$folder"
find "$folder" -mindepth 1 -maxdepth 1 -type d -name '[0-9]*T[0-9]*Z.partial' -mmin +60 -exec rm -rf -- {} +
florilegium backup "$folder/$time.partial"
"$scripts/restore-drill.sh" "$folder/$time.partial"
mv "$folder/$time.partial" "$folder/$time"

# Only names that this script gives, and only after the new backup is in place.
find "$folder" -mindepth 1 -maxdepth 1 -type d -name '[0-9]*T[0-9]*Z' | sort -r | tail -n "+$((keep + 1))" |
    while IFS= read -r old; do
        rm -rf -- "$old"
        echo "deleted $old"
    done
