// What every client script does once it has its transport: connect, list the tools, call server_info, print one JSON
// object and leave. The address and the credential come from the environment, never from the command line.
export const url = new URL(process.env.FLORILEGIUM_TEST_URL);
export const token = process.env.FLORILEGIUM_TEST_TOKEN;
export const identity = { name: "florilegium-tests", version: "1.0.0" };

export async function visit(client, transport, notes = () => ({})) {
  await client.connect(transport);
  const { tools } = await client.listTools();
  const answer = await client.callTool({ name: "server_info", arguments: {} });
  const seen = {
    tools: tools.map((tool) => tool.name),
    isError: answer.isError ?? false,
    info: answer.structuredContent,
    ...notes(client),
  };
  await client.close();
  console.log(JSON.stringify(seen));
}
