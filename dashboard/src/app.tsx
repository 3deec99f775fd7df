import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, useRef, useState } from "react";
import { Route, Switch } from "wouter";

import { ApiError, call, get, type SignedIn } from "./api/client";
import { live, useConnection, useEvents } from "./api/live";
import { isBound } from "./api/scopes";
import { Help } from "./parts/help";
import { Problem } from "./parts/problem";
import { ViewsMenu } from "./parts/views-menu";
import { VIEWS } from "./places";
import { Collection } from "./views/collection";
import { BatchView } from "./views/batch";
import { Consumption } from "./views/consumption";
import { Curation } from "./views/curation";
import { DatasetView } from "./views/dataset";
import { Datasets } from "./views/datasets";
import { Lifecycle } from "./views/lifecycle";
import { Optimization } from "./views/optimization";
import { Runs } from "./views/runs";
import { Settings } from "./views/settings";
import { SignIn } from "./views/sign-in";
import { TrajectoryView } from "./views/trajectory";
import { Trajectories } from "./views/trajectories";

/** So often it is asked who looks at the page, where the server did not answer it. */
const AGAIN = 5_000;
const SAID = { connecting: "Connecting", live: "Live", lost: "Connection lost, trying again", refused: "Not live" };

export function App() {
  const who = useQuery({
    queryKey: ["session"],
    queryFn: ({ signal }) => get<SignedIn>("session", {}, signal),
    refetchInterval: ({ state }) => (state.status === "error" ? AGAIN : false),
  });
  if (who.isPending) return <p className="quiet pad">Loading</p>;
  // Who was known stays so while the server is away: the page keeps what is being written on it.
  if (who.isLoadingError) return <Problem error={who.error} again={() => void who.refetch()} />;
  if (who.data.required && who.data.scopes.length === 0) return <SignIn />;
  // Another key is another page: what listens and asks begins anew with it.
  return <Signed key={who.data.key_id ?? ""} who={who.data} />;
}

function Signed({ who }: { who: SignedIn }) {
  const client = useQueryClient();
  const refresh = useRefresh();
  useState(() => (live.bound = isBound(who)));
  useEvents(refresh);
  useEffect(
    () =>
      // What the server did not answer while it was away is asked for again once it is back, be it for a moment only.
      live.watch(() => {
        if (live.state === "live") void client.refetchQueries({ predicate: (query) => query.state.status === "error" });
      }),
    [client],
  );
  const leave = async () => {
    const nobody = await call<SignedIn>("DELETE", "session");
    live.stop();
    client.setQueryData(["session"], nobody);
    // What was shown is not kept for who signs in next.
    client.removeQueries({ predicate: (query) => query.queryKey[0] !== "session" });
  };
  return (
    <div className="shell">
      <a className="skip" href="#main">
        To the content
      </a>
      <nav aria-label="Views">
        <strong className="brand">AgentWorld</strong>
        <ViewsMenu
          views={VIEWS}
          end={
            who.key_id === null ? null : (
              <button type="button" onClick={() => void leave()} title={`Signed in with ${who.key_id}`}>
                Sign out
              </button>
            )
          }
        />
        <State />
        <Help views={VIEWS} />
      </nav>
      <main id="main" tabIndex={-1}>
        <Switch>
          <Route path="/" component={Lifecycle} />
          <Route path="/trajectories" component={Trajectories} />
          <Route path="/trajectories/:id">{({ id }) => <TrajectoryView key={id} id={decodeURIComponent(id)} />}</Route>
          <Route path="/consumption" component={Consumption} />
          <Route path="/consumption/:id">{({ id }) => <BatchView key={id} id={decodeURIComponent(id)} />}</Route>
          <Route path="/runs" component={Runs} />
          <Route path="/datasets/:version">{({ version }) => <DatasetView key={version} version={decodeURIComponent(version)} />}</Route>
          <Route path="/curation" component={Curation} />
          <Route path="/optimization" component={Optimization} />
          <Route path="/datasets" component={Datasets} />
          <Route path="/collection" component={Collection} />
          <Route path="/settings" component={Settings} />
          <Route>
            <Problem error={new ApiError(404, "not_found", "There is no such page", null, "Choose a view above")} />
          </Route>
        </Switch>
      </main>
    </div>
  );
}

function State() {
  const state = useConnection();
  return (
    <span className={`state ${state}`} role="status" title={SAID[state]}>
      {SAID[state]}
    </span>
  );
}

/** Asks anew for what events may have changed, at most twice a second however many there are. */
function useRefresh(): () => void {
  const client = useQueryClient();
  const waiting = useRef<number | null>(null);
  const [state] = useState({ last: 0 });
  useEffect(() => () => window.clearTimeout(waiting.current ?? undefined), []);
  return () => {
    if (waiting.current !== null) return;
    const due = Math.max(0, state.last + 500 - Date.now());
    waiting.current = window.setTimeout(() => {
      waiting.current = null;
      state.last = Date.now();
      void client.invalidateQueries({ predicate: (query) => query.queryKey[0] === "live" });
    }, due);
  };
}
