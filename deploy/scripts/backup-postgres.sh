#!/bin/sh
# backup-postgres.sh DIR [KEEP]: dumps the database to DIR/TIME.dump, restores the dump into a database of its own, checks
# that, and deletes all but the newest KEEP (14). Servers can keep running. The exit code is 0 only if the new dump is
# complete and can be restored; otherwise it stays as DIR/TIME.dump.partial until a run at least an hour later. The
# result is recorded in the audit log, from which /metrics and the console show it.
#
# The connection is that of psql: PGHOST, PGPORT, PGUSER, PGPASSFILE and PGDATABASE, or PGSERVICE. The role must be a
# superuser: row-level security hides the rows of users from others, and only a superuser may install some extensions.
# Without `florilegium` in PATH, only the numbers of users are compared.
set -eu
umask 077
folder=${1:?usage: backup-postgres.sh DIR [KEEP]}
keep=${2:-14}
time=$(date -u +%Y%m%dT%H%M%SZ)
dump=$folder/$time.dump
scratch=florilegium_drill_$(echo "$time" | tr 'TZ' 'tz')
database=${PGDATABASE:-florilegium}

query() { # DATABASE SQL
    psql --no-psqlrc --quiet --tuples-only --no-align --set=ON_ERROR_STOP=1 --dbname="$1" --command="$2"
}

finish() { # the exit code of the script
    code=$?
    trap - EXIT
    query postgres "DROP DATABASE IF EXISTS $scratch" || true
    action=backup
    [ "$code" = 0 ] || action=backup.failed
    # As the server writes events: ids are times, and writers take turns.
    query "$database" "BEGIN; SELECT pg_advisory_xact_lock(7305126185); INSERT INTO florilegium.events
        (id, time, action, user_id, client, target, address, detail, count)
        SELECT greatest((extract(epoch FROM clock_timestamp()) * 1e6)::bigint, coalesce(max(id), 0) + 1),
        extract(epoch FROM clock_timestamp()), '$action', '', 'backup-postgres.sh', '$time.dump', '', '', 1
        FROM florilegium.events; COMMIT" > /dev/null || echo "the result could not be recorded" >&2
    exit "$code"
}

mkdir -p "$folder"
find "$folder" -mindepth 1 -maxdepth 1 -type f -name '[0-9]*T[0-9]*Z.dump.partial' -mmin +60 -exec rm -f -- {} +
trap finish EXIT
pg_dump --format=custom --file="$dump.partial" --dbname="$database"

query postgres "CREATE DATABASE $scratch TEMPLATE template0 ENCODING 'UTF8'"
pg_restore --exit-on-error --no-owner --dbname="$scratch" "$dump.partial"
users=$(query "$scratch" "SELECT count(*) FROM florilegium.users")
# Users can be added and removed while the dump is made, but not all of them.
[ "$users" -gt 0 ] || [ "$(query "$database" "SELECT count(*) FROM florilegium.users")" = 0 ]
if command -v florilegium > /dev/null; then
    FLORILEGIUM_STORAGE_URL="postgresql:///$scratch" florilegium check
fi
mv "$dump.partial" "$dump"
echo "$dump can be restored: $users users"

# Only names that this script gives, and only after the new dump is in place.
find "$folder" -mindepth 1 -maxdepth 1 -type f -name '[0-9]*T[0-9]*Z.dump' | sort -r | tail -n "+$((keep + 1))" |
    while IFS= read -r old; do
        rm -f -- "$old"
        echo "deleted $old"
    done
